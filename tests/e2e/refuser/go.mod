module namedqueue.io/tests/e2e/refuser

go 1.21
