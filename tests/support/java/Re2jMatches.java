import com.google.re2j.Pattern;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * Prints which topic names match a pattern on a broker: complete names with RE2/J, as in the group coordinator's
 * TopicRegexResolver. The first line of stdin has the names, separated by spaces. Each other line is a pattern; the
 * program prints a line of 0 and 1 for it, or the error.
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
