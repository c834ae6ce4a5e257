"""One HTTP call from inside a pod: METHOD URL, with the body on standard input if there is one.

Prints the status and the body as JSON; a call that nobody answers has the status 0.
"""

import json
import sys
import urllib.error
import urllib.request


def main() -> None:
    method, url = sys.argv[1:]
    body = sys.stdin.buffer.read() if method in {"POST", "PATCH"} else None
    request = urllib.request.Request(url, body, method=method)  # noqa: S310 - a test's own URL
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            answer = (response.status, response.read().decode())
    except urllib.error.HTTPError as refused:
        answer = (refused.code, refused.read().decode())
    except OSError as error:
        answer = (0, str(error))
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
