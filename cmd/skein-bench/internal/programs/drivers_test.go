package programs

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

func TestWrkOutputGivesRateAndLatencies(t *testing.T) {
	for file, want := range map[string]struct {
		m   measure.Measurement
		err string
	}{
		"ok.txt":      {m: measure.Measurement{Value: 1276.23, P50: 0.276, P99: 13.74}},
		"refused.txt": {err: "1516 requests were answered with an error"},
		"broken.txt":  {err: "socket errors: connect 0, read 4127"},
		"nothing.txt": {err: "no rate in its output: unable to connect"},
	} {
		t.Run(file, func(t *testing.T) {
			out, err := os.ReadFile(filepath.Join("testdata", "wrk", file))
			if err != nil {
				t.Fatal(err)
			}
			m, err := parseWrk(out)
			checkMeasurement(t, m, err, want.m, want.err)
		})
	}
}

func TestRedisBenchmarkOutputGivesRateAndLatencies(t *testing.T) {
	for file, want := range map[string]struct {
		m   measure.Measurement
		err string
	}{
		"ok.csv":      {m: measure.Measurement{Value: 104166.66, P50: 0.239, P99: 0.687}},
		"refused.csv": {err: "not a table of one line"},
	} {
		t.Run(file, func(t *testing.T) {
			out, err := os.ReadFile(filepath.Join("testdata", "redis-benchmark", file))
			if err != nil {
				t.Fatal(err)
			}
			m, err := parseRedisBenchmark(out)
			checkMeasurement(t, m, err, want.m, want.err)
		})
	}
}

// checkMeasurement compares what a parser returned with the expected measurement, or with a part of
// the expected error.
func checkMeasurement(t *testing.T, got measure.Measurement, err error, expected measure.Measurement, errorPart string) {
	t.Helper()
	if errorPart != "" {
		if err == nil || !strings.Contains(err.Error(), errorPart) {
			t.Errorf("expected an error with %q, got %v", errorPart, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("measurement (-expected +got):\n%s", diff)
	}
}

func TestHTTPRequestIsAConnectCall(t *testing.T) {
	const expected = "POST /p.S/M HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Type: application/json\r\n" +
		"Connect-Protocol-Version: 1\r\nContent-Length: 2\r\n\r\n{}"
	if got := string(HTTPRequest("127.0.0.1:1", "/p.S/M", "application/json", []byte("{}"))); got != expected {
		t.Errorf("expected %q, got %q", expected, got)
	}
}

func TestWrkJobWritesRequestsAndScript(t *testing.T) {
	dir := t.TempDir()
	j, err := NewWrkJob(dir, "check", "127.0.0.1:1", [][]byte{[]byte("ab"), []byte("c")})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "check.requests"))
	if err != nil || string(data) != "\x00\x00\x00\x02ab\x00\x00\x00\x01c" {
		t.Errorf("expected two requests with their lengths, got %q, %v", data, err)
	}
	script, err := os.ReadFile(j.script)
	if err != nil || !bytes.Contains(script, []byte(filepath.Join(dir, "check.requests"))) || bytes.Contains(script, []byte("FILE")) {
		t.Errorf("expected a script with the path of the requests, got %s, %v", script, err)
	}
}

func TestFollowIsOneTransaction(t *testing.T) {
	const expected = "*1\r\n$5\r\nMULTI\r\n" +
		"*4\r\n$4\r\nZADD\r\n$3\r\nf:1\r\n$1\r\n9\r\n$1\r\n2\r\n" +
		"*4\r\n$4\r\nZADD\r\n$3\r\nr:2\r\n$1\r\n9\r\n$1\r\n1\r\n" +
		"*4\r\n$7\r\nHINCRBY\r\n$3\r\nc:1\r\n$9\r\nfollowing\r\n$1\r\n1\r\n" +
		"*4\r\n$7\r\nHINCRBY\r\n$3\r\nc:2\r\n$9\r\nfollowers\r\n$1\r\n1\r\n" +
		"*1\r\n$4\r\nEXEC\r\n"
	if got := string(AppendFollow(nil, "1", "2", "9")); got != expected {
		t.Errorf("expected %q, got %q", expected, got)
	}
}

func TestSkipReplyReadsWholeReplies(t *testing.T) {
	const good = "+OK\r\n+QUEUED\r\n:1\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n:1\r\n*1\r\n$0\r\n\r\n*0\r\n"
	r := bufio.NewReader(strings.NewReader(good))
	for i := range 7 {
		if err := skipReply(r); err != nil {
			t.Fatalf("reply %d: expected no error, got %v", i, err)
		}
	}
	if n := r.Buffered(); n != 0 {
		t.Errorf("expected that all replies are read, %d bytes are left", n)
	}
}

func TestSkipReplyReturnsErrors(t *testing.T) {
	for reply, errorPart := range map[string]string{
		"-ERR no\r\n":      "redis: ERR no",
		"*2\r\n:1\r\n-E\r": "EOF",
		"*1\r\n-E x\r\n":   "redis: E x",
		"*-1\r\n":          "not executed",
		"?1\r\n":           "unknown reply",
		":1\n":             "malformed line",
		"$x\r\n":           "length",
		"":                 "EOF",
	} {
		t.Run(strconv.Quote(reply), func(t *testing.T) {
			err := skipReply(bufio.NewReader(strings.NewReader(reply)))
			if err == nil || !strings.Contains(err.Error(), errorPart) {
				t.Errorf("expected an error with %q, got %v", errorPart, err)
			}
		})
	}
}
