import com.google.re2j.Pattern;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Which names a broker takes for a pattern's: RE2/J, whole names, as the group coordinator's
 * TopicRegexResolver asks it. The first line has the names, separated by blanks; each further line is a pattern, and
 * answered with a line of 0 and 1, or with the refusal.
 */
public class Re2jMatches {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String[] names = in.readLine().split(" ");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            var answer = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(line);
                for (String name : names) {
                    answer.append(pattern.matcher(name).matches() ? '1' : '0');
                }
            } catch (RuntimeException refused) {
                answer.append("refused: ").append(refused.getMessage());
            }
            System.out.println(answer);
        }
    }
}
