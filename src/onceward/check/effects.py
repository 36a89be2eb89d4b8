"""What calls of Python and of well-known libraries do to the world, by their paths.

A table, so that another library is a line more. A path is as `resolve` writes it: where the name was
imported from, ``()`` for a call, so that ``httpx.AsyncClient().get`` is the method of a client.
What is not in a table is taken to do nothing: a check that cries wolf is switched off.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Effect:
    """What a call does.

    Attributes:
        rule: which rule it breaks outside a step.
        does: in words, after the name of the call.
        blocks: it holds the thread that calls it up.
    """

    rule: str
    does: str
    blocks: bool = False


CLOCK = Effect("time-outside-step", "looks at the clock")
DRAW = Effect("random-outside-step", "draws at random")
NEW_ID = Effect("uuid-outside-step", "makes a new id")
ENVIRONMENT = Effect("environment-outside-step", "reads what belongs to this process or machine")
HTTP = Effect("http-outside-step", "sends a request")
HTTP_BLOCKING = Effect("http-outside-step", "sends a request", blocks=True)
DATABASE = Effect("database-outside-step", "uses a database")
DATABASE_BLOCKING = Effect("database-outside-step", "uses a database", blocks=True)
FILE = Effect("file-outside-step", "touches files")
PROCESS = Effect("process-outside-step", "starts another program")
PROCESS_BLOCKING = Effect("process-outside-step", "starts another program", blocks=True)
NETWORK = Effect("network-outside-step", "talks to another service")
NETWORK_BLOCKING = Effect("network-outside-step", "talks to another service", blocks=True)
SLEEP = Effect("sleep-outside-step", "waits in memory")
SLEEP_BLOCKING = Effect("sleep-outside-step", "waits in memory", blocks=True)


def _paths(prefix: str, names: str) -> list[str]:
    return [f"{prefix}.{name}" for name in names.split()]


_EXACT: dict[Effect, list[str]] = {
    CLOCK: [
        *_paths(
            "time",
            "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time clock_gettime clock_gettime_ns",
        ),
        *_paths("datetime.datetime", "now utcnow today"),
        *_paths("datetime.datetime()", "now utcnow today"),
        "datetime.date.today",
        *_paths("django.utils.timezone", "now localtime localdate"),
        *_paths("pendulum", "now today tomorrow yesterday"),
        *_paths("arrow", "now utcnow"),
        *_paths("pandas.Timestamp", "now today utcnow"),
        *_paths("whenever.Instant", "now"),
        *_paths("whenever.ZonedDateTime", "now"),
        "asyncio.get_running_loop().time",
        "asyncio.get_event_loop().time",
        "anyio.current_time",
        "os.times",
    ],
    DRAW: [
        *_paths(
            "random",
            "random randint randrange choice choices sample shuffle uniform gauss normalvariate lognormvariate expovariate betavariate gammavariate paretovariate triangular vonmisesvariate weibullvariate getrandbits randbytes binomialvariate seed",
        ),
        *_paths("secrets", "token_hex token_bytes token_urlsafe choice randbelow randbits"),
        *_paths("os", "urandom getrandom"),
        "ssl.RAND_bytes",
        "cryptography.fernet.Fernet.generate_key",
        *_paths("django.utils.crypto", "get_random_string"),
    ],
    NEW_ID: [
        *_paths("uuid", "uuid1 uuid4 uuid6 uuid7 uuid8"),
        *_paths("uuid6", "uuid6 uuid7 uuid8"),
        *_paths("uuid_utils", "uuid1 uuid4 uuid6 uuid7"),
        *_paths("uuid_extensions", "uuid7 uuid7str"),
        *_paths("fastuuid", "uuid4 uuid7"),
        *_paths("ulid", "new ULID"),
        "shortuuid.uuid",
        "nanoid.generate",
        "bson.ObjectId",
        "bson.objectid.ObjectId",
        "ksuid.Ksuid",
        "ksuid.ksuid",
        *_paths("cuid", "cuid"),
        "cuid2.cuid_wrapper()",
        "xid.XID",
    ],
    ENVIRONMENT: [
        "os.getenv",
        *_paths("os.environ", "get items keys values pop setdefault copy update"),
        *_paths("os", "getpid getppid getcwd cpu_count getlogin gethostname uname getloadavg putenv"),
        *_paths("socket", "gethostname getfqdn"),
        *_paths("platform", "node uname platform"),
        "getpass.getuser",
        "decouple.config",
        *_paths("dotenv", "load_dotenv dotenv_values"),
        "multiprocessing.cpu_count",
    ],
    HTTP_BLOCKING: [
        *_paths("requests", "get post put patch delete head options request"),
        *_paths("requests.api", "get post put patch delete head options request"),
        *_paths("niquests", "get post put patch delete head options request"),
        *_paths("httpx", "get post put patch delete head options request stream"),
        *_paths("httpx2", "get post put patch delete head options request stream"),
        *_paths("urllib.request", "urlopen urlretrieve"),
        "urllib3.request",
    ],
    HTTP: ["aiohttp.request", *_paths("websockets", "connect"), "websockets.asyncio.client.connect"],
    DATABASE_BLOCKING: [
        *_paths("sqlite3", "connect"),
        *_paths("psycopg", "connect Connection.connect"),
        *_paths("psycopg2", "connect"),
        *_paths("pymysql", "connect"),
        *_paths("MySQLdb", "connect"),
        "mysql.connector.connect",
        *_paths("pyodbc", "connect"),
        *_paths("oracledb", "connect"),
        *_paths("cx_Oracle", "connect"),
        *_paths("duckdb", "connect execute query sql"),
        *_paths("apsw", "Connection"),
        *_paths("pandas", "read_sql read_sql_query read_sql_table"),
        *_paths("django.db.connection", "cursor"),
        *_paths("django.db.transaction", "atomic"),
    ],
    DATABASE: [
        *_paths("aiosqlite", "connect"),
        "psycopg.AsyncConnection.connect",
        *_paths("asyncpg", "connect create_pool"),
        *_paths("aiomysql", "connect create_pool"),
        *_paths("aiopg", "connect create_pool"),
        "oracledb.connect_async",
    ],
    FILE: [
        "open",
        "io.open",
        "codecs.open",
        *_paths(
            "os",
            "open remove unlink rename renames replace mkdir makedirs rmdir removedirs listdir scandir stat lstat walk link symlink truncate chmod chown utime write read access fdopen",
        ),
        *_paths("os.path", "exists isfile isdir islink getsize getmtime getctime getatime"),
        *_paths(
            "shutil",
            "copy copy2 copyfile copytree copymode move rmtree make_archive unpack_archive disk_usage which",
        ),
        *_paths("glob", "glob iglob"),
        *_paths(
            "tempfile",
            "mkstemp mkdtemp mktemp TemporaryFile NamedTemporaryFile TemporaryDirectory SpooledTemporaryFile gettempdir",
        ),
        *_paths("pathlib.Path", "cwd home"),
        *_paths("aiofiles", "open"),
        "anyio.open_file",
        *_paths("pandas", "read_csv read_excel read_parquet read_json"),
        *_paths("zipfile", "ZipFile"),
        *_paths("tarfile", "open"),
        *_paths("gzip", "open"),
        "input",
    ],
    PROCESS_BLOCKING: [
        *_paths("subprocess", "run call check_call check_output getoutput getstatusoutput"),
        *_paths("os", "system popen spawnl spawnv"),
    ],
    PROCESS: [
        "subprocess.Popen",
        *_paths("os", "fork kill killpg execv execve execl execvp abort _exit"),
        *_paths("asyncio", "create_subprocess_exec create_subprocess_shell"),
        *_paths("anyio", "run_process open_process"),
        "multiprocessing.Process",
    ],
    NETWORK_BLOCKING: [
        *_paths("socket", "create_connection getaddrinfo gethostbyname socket"),
        *_paths("smtplib", "SMTP SMTP_SSL"),
        *_paths("ftplib", "FTP FTP_TLS"),
        *_paths("imaplib", "IMAP4 IMAP4_SSL"),
        *_paths("poplib", "POP3 POP3_SSL"),
        *_paths("django.core.mail", "send_mail send_mass_mail mail_admins mail_managers"),
        *_paths("django.core.mail.EmailMessage()", "send"),
        *_paths("django.core.mail.EmailMultiAlternatives()", "send"),
        *_paths("django.core.cache.cache", "get set add delete incr decr get_or_set touch"),
    ],
    NETWORK: [
        *_paths("asyncio", "open_connection open_unix_connection"),
        *_paths("aiosmtplib", "send"),
        *_paths("anyio", "connect_tcp"),
    ],
    SLEEP: ["asyncio.sleep", "anyio.sleep", "trio.sleep", "anyio.sleep_until"],
    SLEEP_BLOCKING: ["time.sleep", "gevent.sleep", "eventlet.sleep"],
}
_BY_PATH = {path: effect for effect, paths in _EXACT.items() for path in paths}

# Calls that look at the clock unless they are given a time.
_CLOCK_WITHOUT = {
    "time.localtime": 1,
    "time.gmtime": 1,
    "time.ctime": 1,
    "time.asctime": 1,
    "time.strftime": 2,
}

_HTTP_METHODS = "get|post|put|patch|delete|head|options|request|send|stream|build_and_send|ws_connect|fetch|urlopen|getresponse|endheaders|execute|query"
_DB_METHODS = (
    r"a?execute|execute_?many|executemany|executescript|fetch\w*|commit|rollback|flush|add|add_all|delete|merge|refresh|"
    r"scalar|scalars|scalar_one|stream|stream_scalars|query|get|get_one|exec|copy|copy_\w+|find\w*|insert\w*|update\w*|replace_one|delete_\w+|"
    r"aggregate|count_documents|distinct|bulk_\w+|connect|begin|begin_nested|acquire|open|transaction|save|run|first|all|one|count|create|filter"
)
_HANDLES = r"cursor|connect|begin|begin_nested|session|acquire|connection|transaction|getconn|execution_options|client|collection|get_collection|get_database|database|table|Table|from_|schema|resource|bucket|Bucket|blob|channel|pipeline|service|users|messages"
_CALL = r"(?:\(\))+"
_WAY = rf"(?:\.\w+(?!\w|\()|\.(?:{_HANDLES}){_CALL})*"


def _clients(roots: str, methods: str) -> re.Pattern[str]:
    """Give what matches a method of a client, reached through attributes and handles of its own."""
    return re.compile(rf"(?:{roots}){_CALL}{_WAY}\.(?:{methods})")


_CLIENTS: list[tuple[re.Pattern[str], Effect]] = [
    (
        _clients(
            r"(?:requests|niquests)\.(?:sessions\.)?[Ss]ession|httpx2?\.Client|urllib3\.\w*Manager|httplib2\.Http|"
            r"http\.client\.HTTPS?Connection|urllib\.request\.build_opener|xmlrpc\.client\.ServerProxy",
            _HTTP_METHODS + "|open",
        ),
        HTTP_BLOCKING,
    ),
    (
        _clients(
            r"(?:niquests)\.AsyncSession|httpx2?\.AsyncClient|aiohttp\.(?:client\.)?ClientSession|tornado\.httpclient\.\w+|"
            r"aiohttp_retry\.RetryClient|gql\.Client|curl_cffi\.requests\.\w+",
            _HTTP_METHODS,
        ),
        HTTP,
    ),
    (
        _clients(
            r"(?:sqlite3|psycopg2|pymysql|MySQLdb|pyodbc|oracledb|cx_Oracle|duckdb|apsw|pymongo|mysql\.connector|peewee|psycopg|"
            r"psycopg_pool|sqlalchemy|sqlmodel|cassandra|neo4j|clickhouse_connect|clickhouse_driver)(?:\.\w+)*",
            _DB_METHODS,
        ),
        DATABASE_BLOCKING,
    ),
    (
        _clients(
            r"(?:aiosqlite|asyncpg|aiomysql|aiopg|databases|motor|gino|tortoise|psycopg\.Async\w+|beanie|edgedb|gel|surrealdb|piccolo|"
            r"psycopg_pool\.Async\w+|sqlalchemy\.ext\.asyncio|sqlmodel\.ext\.asyncio)(?:\.\w+)*",
            _DB_METHODS,
        ),
        DATABASE,
    ),
    (
        _clients(
            r"pathlib\.(?:Path|PosixPath)|anyio\.Path",
            "read_text|read_bytes|write_text|write_bytes|open|unlink|mkdir|exists|is_file|is_dir|touch|rename|replace|"
            "iterdir|glob|rglob|stat|rmdir|symlink_to|hardlink_to|chmod|resolve|samefile|walk",
        ),
        FILE,
    ),
    (_clients(r"random\.SystemRandom|secrets\.SystemRandom", r"\w+"), DRAW),
    (re.compile(r"(?:numpy|np)\.random\.(?!Generator|SeedSequence|PCG64|RandomState|default_rng)\w+"), DRAW),
    (re.compile(r"numpy\.random\.default_rng\(\)\.\w+"), DRAW),
    (
        re.compile(
            r"(?:redis|valkey|memcache|pymemcache)(?:\.\w+)*(?:\(\))+(?:\.\w+(?!\w|\())*\.(?!close|aclose|pipeline|register_script)\w+"
        ),
        NETWORK,
    ),
    (
        re.compile(
            r"(?:boto3|botocore|aioboto3|aiobotocore|openai|anthropic|mistralai|cohere|twilio|sendgrid|slack_sdk|kafka|"
            r"confluent_kafka|aiokafka|pika|aio_pika|nats|paramiko|asyncssh|resend|postmarker|mailjet_rest|algoliasearch|elasticsearch|"
            r"opensearchpy|supabase|firebase_admin|googleapiclient|google\.cloud|azure|shopify|braintree|square|adyen|github|gitlab|"
            r"telegram|discord|smtplib|ftplib|imaplib|poplib|socket|grpc|minio|hvac|etcd3|kazoo|paypalrestsdk|plaid|hubspot|intercom)"
            r"(?:\.\w+)*(?:\(\))+(?:\.\w+(?!\w|\()|\.\w+\(\)(?=\.))*\.(?!close|aclose|client|resource|Table|Bucket|Object|bucket|blob|session|disconnect|upper|lower|strip|get|items|keys)[a-z]\w*"
        ),
        NETWORK_BLOCKING,
    ),
    (
        re.compile(
            r"stripe\.(?:[A-Z]\w*\.)+(?:create|retrieve|modify|list|delete|capture|confirm|cancel|update|search|pay|refund|void_invoice|finalize_invoice|send_invoice)(?:_async)?"
        ),
        HTTP_BLOCKING,
    ),
    (
        re.compile(
            r"stripe\.StripeClient\(\)(?:\.\w+)*\.(?:create|retrieve|list|delete|capture|confirm|cancel|update|search|pay|refund)(?:_async)?"
        ),
        HTTP_BLOCKING,
    ),
    (
        re.compile(
            r"[\w.]+\.objects\.a?(?:create|get|filter|exclude|all|update|delete|bulk_create|bulk_update|get_or_create|update_or_create|first|last|count|exists|aggregate|values|values_list|in_bulk|raw|select_for_update|using|order_by|annotate)"
        ),
        DATABASE_BLOCKING,
    ),
]


def effect_of(path: str, call: ast.Call) -> Effect | None:
    """Give what a call of something with this path does, or None if it is not known to do anything."""
    found = _BY_PATH.get(path)
    if found is not None:
        is_seeded = path == "uuid.uuid8" and len(call.args) == 3
        is_yield = found.rule == "sleep-outside-step" and _is_zero(call)
        is_object_id = path.startswith("bson") and call.args
        return None if is_seeded or is_yield or is_object_id else found
    if path == "random.Random":
        return None if call.args or call.keywords else DRAW
    needed = _CLOCK_WITHOUT.get(path)
    if needed is not None:
        return CLOCK if len(call.args) < needed else None
    for pattern, effect in _CLIENTS:
        if pattern.fullmatch(path):
            return effect
    return None


def _is_zero(call: ast.Call) -> bool:
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and first.value == 0


# --- where the source says too little ------------------------------------------------------------

_CLIENT_NAME = re.compile(
    r"(?:.*_)?(?:http|https|client|session|requests|api|rest|httpx|aiohttp)(?:_client|_session)?",
    re.IGNORECASE,
)
_DB_NAME = re.compile(
    r"(?:.*_)?(?:db|database|conn|connection|cursor|cur|engine|pool|tx|transaction|pg|postgres|mysql|mongo|sqlite)(?:_pool|_conn|_connection|_session|_client)?",
    re.IGNORECASE,
)
_DB_SURE = re.compile(
    r"execute|execute_?many|executescript|fetch(?:row|val|one|all|many)?|commit|rollback|copy_records_to_table|insert_one|insert_many|find_one|update_one|delete_one"
)
_DB_AWAITED = re.compile(
    r"add|flush|save|insert|update|delete|query|scalar|scalars|find|get|merge|refresh|begin"
)


def guessed(receiver: str, method: str, *, is_awaited: bool) -> Effect | None:
    """Give what a method of something unknown does, by what people call such things."""
    if _DB_NAME.fullmatch(receiver) and _DB_SURE.fullmatch(method):
        return DATABASE
    if receiver == "session" and method in {"execute", "commit", "scalars", "flush"}:
        return DATABASE
    if is_awaited and _DB_NAME.fullmatch(receiver) and _DB_AWAITED.fullmatch(method):
        return DATABASE
    if _CLIENT_NAME.fullmatch(receiver):
        if method in {"post", "put", "patch"}:
            return HTTP
        if is_awaited and method in {"get", "delete", "head", "options", "request", "send", "stream"}:
            return HTTP
    return None


# Functions that call what they are given, at once or in another thread.
CALLERS: dict[str, tuple[int, ...]] = {
    "map": (0,),
    "filter": (0,),
    "sorted": (),
    "functools.reduce": (0,),
    "asyncio.to_thread": (0,),
    "asyncio.get_running_loop().run_in_executor": (1,),
    "asyncio.get_event_loop().run_in_executor": (1,),
    "anyio.to_thread.run_sync": (0,),
    "asgiref.sync.sync_to_async()": (),
    "concurrent.futures.ThreadPoolExecutor().submit": (0,),
    "concurrent.futures.ThreadPoolExecutor().map": (0,),
    "concurrent.futures.ProcessPoolExecutor().submit": (0,),
    "concurrent.futures.ProcessPoolExecutor().map": (0,),
    "threading.Thread": (),
    "threading.Timer": (1,),
    "iter": (0,),
    "itertools.starmap": (0,),
    "contextvars.copy_context().run": (0,),
    "asyncio.get_running_loop().call_soon": (0,),
    "asyncio.get_running_loop().call_later": (1,),
}
CALLED_KEYWORDS = {"target", "key", "default_factory"}
