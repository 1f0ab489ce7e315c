"""The messages of the Kafka protocol that this package uses, as tables of their fields.

Each table has every version of its message in Apache Kafka 4.4; `versions.SUPPORTED` are those in use. The tables
follow Kafka's message definitions and are compared with those of the broker's jar, field by field
(`tests/wire/test_messages_of_kafka.py`), with another implementation's bytes, both ways and in every version
(`tests/wire/test_messages.py`), and, except for operators' requests, with frames of the Java client and of librdkafka
(`tests/wire/golden`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from consumer_membership.wire.schema import NEVER, Table
from consumer_membership.wire.versions import Api

LIST_OFFSETS_REQUEST = Table(
    "ListOffsetsRequest",
    "6+",
    """
    ReplicaId               int32     0+
    IsolationLevel          int8      2+
    Topics                  []struct  0+
      Name                  string    0+
      Partitions            []struct  0+
        PartitionIndex      int32     0+
        CurrentLeaderEpoch  int32     4+   default=-1
        Timestamp           int64     0+
    TimeoutMs               int32     10+
    """,
)

LIST_OFFSETS_RESPONSE = Table(
    "ListOffsetsResponse",
    "6+",
    """
    ThrottleTimeMs      int32     2+
    Topics              []struct  0+
      Name              string    0+
      Partitions        []struct  0+
        PartitionIndex  int32     0+
        ErrorCode       int16     0+
        Timestamp       int64     1+  default=-1
        Offset          int64     1+  default=-1
        LeaderEpoch     int32     4+  default=-1
    """,
)

METADATA_REQUEST = Table(
    "MetadataRequest",
    "9+",
    """
    Topics                              []struct  0+    nullable=1+
      TopicId                           uuid      10+
      Name                              string    0+    nullable=10+
    AllowAutoTopicCreation              bool      4+    default=true
    IncludeClusterAuthorizedOperations  bool      8-10
    IncludeTopicAuthorizedOperations    bool      8+
    """,
)

METADATA_RESPONSE = Table(
    "MetadataResponse",
    "9+",
    """
    ThrottleTimeMs               int32     3+
    Brokers                      []struct  0+
      NodeId                     int32     0+
      Host                       string    0+
      Port                       int32     0+
      Rack                       string    1+    nullable=1+  default=null
    ClusterId                    string    2+    nullable=2+  default=null
    ControllerId                 int32     1+    default=-1
    Topics                       []struct  0+
      ErrorCode                  int16     0+
      Name                       string    0+    nullable=12+
      TopicId                    uuid      10+
      IsInternal                 bool      1+    default=false
      Partitions                 []struct  0+
        ErrorCode                int16     0+
        PartitionIndex           int32     0+
        LeaderId                 int32     0+
        LeaderEpoch              int32     7+    default=-1
        ReplicaNodes             []int32   0+
        IsrNodes                 []int32   0+
        OfflineReplicas          []int32   5+
      TopicAuthorizedOperations  int32     8+    default=-2147483648
    ClusterAuthorizedOperations  int32     8-10  default=-2147483648
    ErrorCode                    int16     13+
    """,
)

OFFSET_COMMIT_REQUEST = Table(
    "OffsetCommitRequest",
    "8+",
    """
    GroupId                    string    0+
    GenerationIdOrMemberEpoch  int32     1+   default=-1
    MemberId                   string    1+
    GroupInstanceId            string    7+   nullable=7+  default=null
    RetentionTimeMs            int64     2-4  default=-1
    Topics                     []struct  0+
      Name                     string    0-9
      TopicId                  uuid      10+
      Partitions               []struct  0+
        PartitionIndex         int32     0+
        CommittedOffset        int64     0+
        CommittedLeaderEpoch   int32     6+   default=-1
        CommittedMetadata      string    0+   nullable=0+
    """,
)

OFFSET_COMMIT_RESPONSE = Table(
    "OffsetCommitResponse",
    "8+",
    """
    ThrottleTimeMs      int32     3+
    Topics              []struct  0+
      Name              string    0-9
      TopicId           uuid      10+
      Partitions        []struct  0+
        PartitionIndex  int32     0+
        ErrorCode       int16     0+
    """,
)

OFFSET_FETCH_REQUEST = Table(
    "OffsetFetchRequest",
    "6+",
    """
    GroupId               string    0-7
    Topics                []struct  0-7  nullable=2-7
      Name                string    0-7
      PartitionIndexes    []int32   0-7
    Groups                []struct  8+
      GroupId             string    8+
      MemberId            string    9+   nullable=9+  default=null
      MemberEpoch         int32     9+   default=-1
      Topics              []struct  8+   nullable=8+
        Name              string    8-9
        TopicId           uuid      10+
        PartitionIndexes  []int32   8+
    RequireStable         bool      7+   default=false
    """,
)

OFFSET_FETCH_RESPONSE = Table(
    "OffsetFetchResponse",
    "6+",
    """
    ThrottleTimeMs              int32     3+
    Topics                      []struct  0-7
      Name                      string    0-7
      Partitions                []struct  0-7
        PartitionIndex          int32     0-7
        CommittedOffset         int64     0-7
        CommittedLeaderEpoch    int32     5-7  default=-1
        Metadata                string    0-7  nullable=0-7
        ErrorCode               int16     0-7
    ErrorCode                   int16     2-7  default=0
    Groups                      []struct  8+
      GroupId                   string    8+
      Topics                    []struct  8+
        Name                    string    8-9
        TopicId                 uuid      10+
        Partitions              []struct  8+
          PartitionIndex        int32     8+
          CommittedOffset       int64     8+
          CommittedLeaderEpoch  int32     8+   default=-1
          Metadata              string    8+   nullable=8+
          ErrorCode             int16     8+
      ErrorCode                 int16     8+   default=0
    """,
)

FIND_COORDINATOR_REQUEST = Table(
    "FindCoordinatorRequest",
    "3+",
    """
    Key              string    0-3
    KeyType          int8      1+   default=0
    CoordinatorKeys  []string  4+
    """,
)

FIND_COORDINATOR_RESPONSE = Table(
    "FindCoordinatorResponse",
    "3+",
    """
    ThrottleTimeMs  int32     1+
    ErrorCode       int16     0-3
    ErrorMessage    string    1-3  nullable=1-3
    NodeId          int32     0-3
    Host            string    0-3
    Port            int32     0-3
    Coordinators    []struct  4+
      Key           string    4+
      NodeId        int32     4+
      Host          string    4+
      Port          int32     4+
      ErrorCode     int16     4+
      ErrorMessage  string    4+   nullable=4+
    """,
)

JOIN_GROUP_REQUEST = Table(
    "JoinGroupRequest",
    "6+",
    """
    GroupId             string    0+
    SessionTimeoutMs    int32     0+
    RebalanceTimeoutMs  int32     1+  default=-1
    MemberId            string    0+
    GroupInstanceId     string    5+  nullable=5+  default=null
    ProtocolType        string    0+
    Protocols           []struct  0+
      Name              string    0+
      Metadata          bytes     0+
    Reason              string    8+  nullable=8+  default=null
    """,
)

JOIN_GROUP_RESPONSE = Table(
    "JoinGroupResponse",
    "6+",
    """
    ThrottleTimeMs     int32     2+
    ErrorCode          int16     0+
    GenerationId       int32     0+  default=-1
    ProtocolType       string    7+  nullable=7+  default=null
    ProtocolName       string    0+  nullable=7+
    Leader             string    0+
    SkipAssignment     bool      9+  default=false
    MemberId           string    0+
    Members            []struct  0+
      MemberId         string    0+
      GroupInstanceId  string    5+  nullable=5+  default=null
      Metadata         bytes     0+
    """,
)

HEARTBEAT_REQUEST = Table(
    "HeartbeatRequest",
    "4+",
    """
    GroupId          string  0+
    GenerationId     int32   0+
    MemberId         string  0+
    GroupInstanceId  string  3+  nullable=3+  default=null
    """,
)

HEARTBEAT_RESPONSE = Table(
    "HeartbeatResponse",
    "4+",
    """
    ThrottleTimeMs  int32  1+
    ErrorCode       int16  0+
    """,
)

LEAVE_GROUP_REQUEST = Table(
    "LeaveGroupRequest",
    "4+",
    """
    GroupId            string    0+
    MemberId           string    0-2
    Members            []struct  3+
      MemberId         string    3+
      GroupInstanceId  string    3+   nullable=3+  default=null
      Reason           string    5+   nullable=5+  default=null
    """,
)

LEAVE_GROUP_RESPONSE = Table(
    "LeaveGroupResponse",
    "4+",
    """
    ThrottleTimeMs     int32     1+
    ErrorCode          int16     0+
    Members            []struct  3+
      MemberId         string    3+
      GroupInstanceId  string    3+  nullable=3+
      ErrorCode        int16     3+
    """,
)

SYNC_GROUP_REQUEST = Table(
    "SyncGroupRequest",
    "4+",
    """
    GroupId          string    0+
    GenerationId     int32     0+
    MemberId         string    0+
    GroupInstanceId  string    3+  nullable=3+  default=null
    ProtocolType     string    5+  nullable=5+  default=null
    ProtocolName     string    5+  nullable=5+  default=null
    Assignments      []struct  0+
      MemberId       string    0+
      Assignment     bytes     0+
    """,
)

SYNC_GROUP_RESPONSE = Table(
    "SyncGroupResponse",
    "4+",
    """
    ThrottleTimeMs  int32   1+
    ErrorCode       int16   0+
    ProtocolType    string  5+  nullable=5+  default=null
    ProtocolName    string  5+  nullable=5+  default=null
    Assignment      bytes   0+
    """,
)

DESCRIBE_GROUPS_REQUEST = Table(
    "DescribeGroupsRequest",
    "5+",
    """
    Groups                       []string  0+
    IncludeAuthorizedOperations  bool      3+
    """,
)

DESCRIBE_GROUPS_RESPONSE = Table(
    "DescribeGroupsResponse",
    "5+",
    """
    ThrottleTimeMs          int32     1+
    Groups                  []struct  0+
      ErrorCode             int16     0+
      ErrorMessage          string    6+  nullable=6+  default=null
      GroupId               string    0+
      GroupState            string    0+
      ProtocolType          string    0+
      ProtocolData          string    0+
      Members               []struct  0+
        MemberId            string    0+
        GroupInstanceId     string    4+  nullable=4+  default=null
        ClientId            string    0+
        ClientHost          string    0+
        MemberMetadata      bytes     0+
        MemberAssignment    bytes     0+
      AuthorizedOperations  int32     3+  default=-2147483648
    """,
)

LIST_GROUPS_REQUEST = Table(
    "ListGroupsRequest",
    "3+",
    """
    StatesFilter  []string  4+
    TypesFilter   []string  5+
    """,
)

LIST_GROUPS_RESPONSE = Table(
    "ListGroupsResponse",
    "3+",
    """
    ThrottleTimeMs  int32     1+
    ErrorCode       int16     0+
    Groups          []struct  0+
      GroupId       string    0+
      ProtocolType  string    0+
      GroupState    string    4+
      GroupType     string    5+
    """,
)

SASL_HANDSHAKE_REQUEST = Table(
    "SaslHandshakeRequest",
    NEVER,
    """
    Mechanism  string  0+
    """,
)

SASL_HANDSHAKE_RESPONSE = Table(
    "SaslHandshakeResponse",
    NEVER,
    """
    ErrorCode   int16     0+
    Mechanisms  []string  0+
    """,
)

API_VERSIONS_REQUEST = Table(
    "ApiVersionsRequest",
    "3+",
    """
    ClientSoftwareName     string  3+
    ClientSoftwareVersion  string  3+
    ClusterId              string  5+  nullable=5+  default=null
    NodeId                 int32   5+  default=-1
    """,
)

API_VERSIONS_RESPONSE = Table(
    "ApiVersionsResponse",
    "3+",
    """
    ErrorCode               int16     0+
    ApiKeys                 []struct  0+
      ApiKey                int16     0+
      MinVersion            int16     0+
      MaxVersion            int16     0+
    ThrottleTimeMs          int32     1+
    SupportedFeatures       []struct  3+  tag=0
      Name                  string    3+
      MinVersion            int16     3+
      MaxVersion            int16     3+
    FinalizedFeaturesEpoch  int64     3+  tag=1  default=-1
    FinalizedFeatures       []struct  3+  tag=2
      Name                  string    3+
      MaxVersionLevel       int16     3+
      MinVersionLevel       int16     3+
    ZkMigrationReady        bool      3+  tag=3  default=false
    """,
)

DESCRIBE_CONFIGS_REQUEST = Table(
    "DescribeConfigsRequest",
    "4+",
    """
    Resources             []struct  0+
      ResourceType        int8      0+
      ResourceName        string    0+
      ConfigurationKeys   []string  0+  nullable=0+
    IncludeSynonyms       bool      1+  default=false
    IncludeDocumentation  bool      3+  default=false
    """,
)

DESCRIBE_CONFIGS_RESPONSE = Table(
    "DescribeConfigsResponse",
    "4+",
    """
    ThrottleTimeMs     int32     0+
    Results            []struct  0+
      ErrorCode        int16     0+
      ErrorMessage     string    0+  nullable=0+
      ResourceType     int8      0+
      ResourceName     string    0+
      Configs          []struct  0+
        Name           string    0+
        Value          string    0+  nullable=0+
        ReadOnly       bool      0+
        ConfigSource   int8      1+  default=-1
        IsSensitive    bool      0+
        Synonyms       []struct  1+
          Name         string    1+
          Value        string    1+  nullable=0+
          Source       int8      1+
        ConfigType     int8      3+  default=0
        Documentation  string    3+  nullable=0+
    """,
)

SASL_AUTHENTICATE_REQUEST = Table(
    "SaslAuthenticateRequest",
    "2+",
    """
    AuthBytes  bytes  0+
    """,
)

SASL_AUTHENTICATE_RESPONSE = Table(
    "SaslAuthenticateResponse",
    "2+",
    """
    ErrorCode          int16   0+
    ErrorMessage       string  0+  nullable=0+
    AuthBytes          bytes   0+
    SessionLifetimeMs  int64   1+  default=0
    """,
)

DESCRIBE_PRODUCERS_REQUEST = Table(
    "DescribeProducersRequest",
    "0+",
    """
    Topics              []struct  0+
      Name              string    0+
      PartitionIndexes  []int32   0+
    """,
)

DESCRIBE_PRODUCERS_RESPONSE = Table(
    "DescribeProducersResponse",
    "0+",
    """
    ThrottleTimeMs               int32     0+
    Topics                       []struct  0+
      Name                       string    0+
      Partitions                 []struct  0+
        PartitionIndex           int32     0+
        ErrorCode                int16     0+
        ErrorMessage             string    0+  nullable=0+  default=null
        ActiveProducers          []struct  0+
          ProducerId             int64     0+
          ProducerEpoch          int32     0+
          LastSequence           int32     0+  default=-1
          LastTimestamp          int64     0+  default=-1
          CoordinatorEpoch       int32     0+
          CurrentTxnStartOffset  int64     0+  default=-1
    """,
)

DESCRIBE_TRANSACTIONS_REQUEST = Table(
    "DescribeTransactionsRequest",
    "0+",
    """
    TransactionalIds  []string  0+
    """,
)

DESCRIBE_TRANSACTIONS_RESPONSE = Table(
    "DescribeTransactionsResponse",
    "0+",
    """
    ThrottleTimeMs            int32     0+
    TransactionStates         []struct  0+
      ErrorCode               int16     0+
      TransactionalId         string    0+
      TransactionState        string    0+
      TransactionTimeoutMs    int32     0+
      TransactionStartTimeMs  int64     0+
      ProducerId              int64     0+
      ProducerEpoch           int16     0+
      Topics                  []struct  0+
        Topic                 string    0+
        Partitions            []int32   0+
    """,
)

LIST_TRANSACTIONS_REQUEST = Table(
    "ListTransactionsRequest",
    "0+",
    """
    StateFilters            []string  0+
    ProducerIdFilters       []int64   0+
    DurationFilter          int64     1+  default=-1
    TransactionalIdPattern  string    2+  nullable=2+  default=null
    """,
)

LIST_TRANSACTIONS_RESPONSE = Table(
    "ListTransactionsResponse",
    "0+",
    """
    ThrottleTimeMs       int32     0+
    ErrorCode            int16     0+
    UnknownStateFilters  []string  0+
    TransactionStates    []struct  0+
      TransactionalId    string    0+
      ProducerId         int64     0+
      TransactionState   string    0+
    """,
)

CONSUMER_GROUP_HEARTBEAT_REQUEST = Table(
    "ConsumerGroupHeartbeatRequest",
    "0+",
    """
    GroupId               string    0+
    MemberId              string    0+
    MemberEpoch           int32     0+
    InstanceId            string    0+  nullable=0+  default=null
    RackId                string    0+  nullable=0+  default=null
    RebalanceTimeoutMs    int32     0+  default=-1
    SubscribedTopicNames  []string  0+  nullable=0+  default=null
    SubscribedTopicRegex  string    1+  nullable=1+  default=null
    ServerAssignor        string    0+  nullable=0+  default=null
    TopicPartitions       []struct  0+  nullable=0+  default=null
      TopicId             uuid      0+
      Partitions          []int32   0+
    """,
)

CONSUMER_GROUP_HEARTBEAT_RESPONSE = Table(
    "ConsumerGroupHeartbeatResponse",
    "0+",
    """
    ThrottleTimeMs       int32     0+
    ErrorCode            int16     0+
    ErrorMessage         string    0+  nullable=0+  default=null
    MemberId             string    0+  nullable=0+  default=null
    MemberEpoch          int32     0+
    HeartbeatIntervalMs  int32     0+
    Assignment           struct    0+  nullable=0+  default=null
      TopicPartitions    []struct  0+
        TopicId          uuid      0+
        Partitions       []int32   0+
    """,
)

CONSUMER_GROUP_DESCRIBE_REQUEST = Table(
    "ConsumerGroupDescribeRequest",
    "0+",
    """
    GroupIds                     []string  0+
    IncludeAuthorizedOperations  bool      0+
    """,
)

CONSUMER_GROUP_DESCRIBE_RESPONSE = Table(
    "ConsumerGroupDescribeResponse",
    "0+",
    """
    ThrottleTimeMs            int32     0+
    Groups                    []struct  0+
      ErrorCode               int16     0+
      ErrorMessage            string    0+  nullable=0+  default=null
      GroupId                 string    0+
      GroupState              string    0+
      GroupEpoch              int32     0+
      AssignmentEpoch         int32     0+
      AssignorName            string    0+
      Members                 []struct  0+
        MemberId              string    0+
        InstanceId            string    0+  nullable=0+  default=null
        RackId                string    0+  nullable=0+  default=null
        MemberEpoch           int32     0+
        ClientId              string    0+
        ClientHost            string    0+
        SubscribedTopicNames  []string  0+
        SubscribedTopicRegex  string    0+  nullable=0+  default=null
        Assignment            struct    0+
          TopicPartitions     []struct  0+
            TopicId           uuid      0+
            TopicName         string    0+
            Partitions        []int32   0+
        TargetAssignment      struct    0+
          TopicPartitions     []struct  0+
            TopicId           uuid      0+
            TopicName         string    0+
            Partitions        []int32   0+
        MemberType            int8      1+  default=-1
      AuthorizedOperations    int32     0+  default=-2147483648
    """,
)

GET_TELEMETRY_SUBSCRIPTIONS_REQUEST = Table(
    "GetTelemetrySubscriptionsRequest",
    "0+",
    """
    ClientInstanceId  uuid  0+
    """,
)

GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE = Table(
    "GetTelemetrySubscriptionsResponse",
    "0+",
    """
    ThrottleTimeMs            int32     0+
    ErrorCode                 int16     0+
    ClientInstanceId          uuid      0+
    SubscriptionId            int32     0+
    AcceptedCompressionTypes  []int8    0+
    PushIntervalMs            int32     0+
    TelemetryMaxBytes         int32     0+
    DeltaTemporality          bool      0+
    RequestedMetrics          []string  0+
    """,
)

PUSH_TELEMETRY_REQUEST = Table(
    "PushTelemetryRequest",
    "0+",
    """
    ClientInstanceId  uuid   0+
    SubscriptionId    int32  0+
    Terminating       bool   0+
    CompressionType   int8   0+
    Metrics           bytes  0+
    """,
)

PUSH_TELEMETRY_RESPONSE = Table(
    "PushTelemetryResponse",
    "0+",
    """
    ThrottleTimeMs  int32  0+
    ErrorCode       int16  0+
    """,
)

#: Data that members of a classic group exchange, after a version of two bytes (KIP-429, KIP-792, KIP-881).
SUBSCRIPTION = Table(
    "ConsumerProtocolSubscription",
    NEVER,
    """
    Topics           []string  0+
    UserData         bytes     0+  nullable=0+  default=null
    OwnedPartitions  []struct  1+
      Topic          string    1+
      Partitions     []int32   1+
    GenerationId     int32     2+  default=-1
    RackId           string    3+  nullable=3+  default=null
    """,
)

ASSIGNMENT = Table(
    "ConsumerProtocolAssignment",
    NEVER,
    """
    AssignedPartitions  []struct  0+
      Topic             string    0+
      Partitions        []int32   0+
    UserData            bytes     0+  nullable=0+  default=null
    """,
)

#: The request and the response of each API.
LAYOUTS: Mapping[Api, tuple[Table, Table]] = MappingProxyType(
    {
        Api.LIST_OFFSETS: (LIST_OFFSETS_REQUEST, LIST_OFFSETS_RESPONSE),
        Api.METADATA: (METADATA_REQUEST, METADATA_RESPONSE),
        Api.OFFSET_COMMIT: (OFFSET_COMMIT_REQUEST, OFFSET_COMMIT_RESPONSE),
        Api.OFFSET_FETCH: (OFFSET_FETCH_REQUEST, OFFSET_FETCH_RESPONSE),
        Api.FIND_COORDINATOR: (FIND_COORDINATOR_REQUEST, FIND_COORDINATOR_RESPONSE),
        Api.JOIN_GROUP: (JOIN_GROUP_REQUEST, JOIN_GROUP_RESPONSE),
        Api.HEARTBEAT: (HEARTBEAT_REQUEST, HEARTBEAT_RESPONSE),
        Api.LEAVE_GROUP: (LEAVE_GROUP_REQUEST, LEAVE_GROUP_RESPONSE),
        Api.SYNC_GROUP: (SYNC_GROUP_REQUEST, SYNC_GROUP_RESPONSE),
        Api.DESCRIBE_GROUPS: (DESCRIBE_GROUPS_REQUEST, DESCRIBE_GROUPS_RESPONSE),
        Api.LIST_GROUPS: (LIST_GROUPS_REQUEST, LIST_GROUPS_RESPONSE),
        Api.SASL_HANDSHAKE: (SASL_HANDSHAKE_REQUEST, SASL_HANDSHAKE_RESPONSE),
        Api.API_VERSIONS: (API_VERSIONS_REQUEST, API_VERSIONS_RESPONSE),
        Api.DESCRIBE_CONFIGS: (DESCRIBE_CONFIGS_REQUEST, DESCRIBE_CONFIGS_RESPONSE),
        Api.SASL_AUTHENTICATE: (SASL_AUTHENTICATE_REQUEST, SASL_AUTHENTICATE_RESPONSE),
        Api.DESCRIBE_PRODUCERS: (DESCRIBE_PRODUCERS_REQUEST, DESCRIBE_PRODUCERS_RESPONSE),
        Api.DESCRIBE_TRANSACTIONS: (DESCRIBE_TRANSACTIONS_REQUEST, DESCRIBE_TRANSACTIONS_RESPONSE),
        Api.LIST_TRANSACTIONS: (LIST_TRANSACTIONS_REQUEST, LIST_TRANSACTIONS_RESPONSE),
        Api.CONSUMER_GROUP_HEARTBEAT: (CONSUMER_GROUP_HEARTBEAT_REQUEST, CONSUMER_GROUP_HEARTBEAT_RESPONSE),
        Api.CONSUMER_GROUP_DESCRIBE: (CONSUMER_GROUP_DESCRIBE_REQUEST, CONSUMER_GROUP_DESCRIBE_RESPONSE),
        Api.GET_TELEMETRY_SUBSCRIPTIONS: (GET_TELEMETRY_SUBSCRIPTIONS_REQUEST, GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE),
        Api.PUSH_TELEMETRY: (PUSH_TELEMETRY_REQUEST, PUSH_TELEMETRY_RESPONSE),
    }
)
