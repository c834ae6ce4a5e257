"""A program that sends one job to the URL it is given and ends, as a batch job does.

It comes up together with the sidecar, which may not have reached the broker yet: 503 means later.
"""

import http.client
import sys
import time
from urllib.parse import urlsplit


def main() -> None:
    url = urlsplit(sys.argv[1])
    while True:
        connection = http.client.HTTPConnection(url.netloc)
        connection.request("POST", url.path, b"{}", {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.client.SERVICE_UNAVAILABLE:
            sys.exit(0 if answer.status == http.client.ACCEPTED else 1)
        time.sleep(int(answer.headers["Retry-After"]))


if __name__ == "__main__":
    main()
