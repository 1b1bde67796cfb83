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
	for file, test := range map[string]struct {
		want    measure.Measurement
		wantErr string
	}{
		"ok.txt":      {want: measure.Measurement{Value: 1276.23, P50: 0.276, P99: 13.74}},
		"refused.txt": {wantErr: "1516 requests were answered with an error"},
		"broken.txt":  {wantErr: "socket errors: connect 0, read 4127"},
		"nothing.txt": {wantErr: "no rate in its output: unable to connect"},
	} {
		t.Run(file, func(t *testing.T) {
			output, err := os.ReadFile(filepath.Join("testdata", "wrk", file))
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseWrk(output)
			checkMeasurement(t, got, err, test.want, test.wantErr)
		})
	}
}

func TestRedisBenchmarkOutputGivesRateAndLatencies(t *testing.T) {
	for file, test := range map[string]struct {
		want    measure.Measurement
		wantErr string
	}{
		"ok.csv":      {want: measure.Measurement{Value: 104166.66, P50: 0.239, P99: 0.687}},
		"refused.csv": {wantErr: "not a table of one line"},
	} {
		t.Run(file, func(t *testing.T) {
			output, err := os.ReadFile(filepath.Join("testdata", "redis-benchmark", file))
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseRedisBenchmark(output)
			checkMeasurement(t, got, err, test.want, test.wantErr)
		})
	}
}

// checkMeasurement compares what a parser returned with the wanted measurement or, if wantErr is
// not empty, with a part of the wanted error.
func checkMeasurement(t *testing.T, got measure.Measurement, err error, want measure.Measurement, wantErr string) {
	t.Helper()
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("got error %v, want one with %q", err, wantErr)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("measurement (-want +got):\n%s", diff)
	}
}

func TestHTTPRequestIsAConnectCall(t *testing.T) {
	const want = "POST /p.S/M HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Type: application/json\r\n" +
		"Connect-Protocol-Version: 1\r\nContent-Length: 2\r\n\r\n{}"
	if got := string(HTTPRequest("127.0.0.1:1", "/p.S/M", "application/json", []byte("{}"))); got != want {
		t.Errorf("HTTPRequest: got %q, want %q", got, want)
	}
}

func TestWrkJobWritesRequestsAndScript(t *testing.T) {
	dir := t.TempDir()
	job, err := NewWrkJob(dir, "check", "127.0.0.1:1", [][]byte{[]byte("ab"), []byte("c")})
	if err != nil {
		t.Fatal(err)
	}

	// Each request comes after its length in four bytes.
	requestsPath := filepath.Join(dir, "check.requests")
	requests, err := os.ReadFile(requestsPath)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x00\x00\x00\x02ab\x00\x00\x00\x01c"; string(requests) != want {
		t.Errorf("requests: got %q, want %q", requests, want)
	}

	// FILE stands for the path in the template of the script.
	script, err := os.ReadFile(job.script)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(script, []byte(requestsPath)) || bytes.Contains(script, []byte("FILE")) {
		t.Errorf("script: got\n%s\nwant %s in place of FILE", script, requestsPath)
	}
}

func TestFollowIsOneTransaction(t *testing.T) {
	const want = "*1\r\n$5\r\nMULTI\r\n" +
		"*4\r\n$4\r\nZADD\r\n$3\r\nf:1\r\n$1\r\n9\r\n$1\r\n2\r\n" +
		"*4\r\n$4\r\nZADD\r\n$3\r\nr:2\r\n$1\r\n9\r\n$1\r\n1\r\n" +
		"*4\r\n$7\r\nHINCRBY\r\n$3\r\nc:1\r\n$9\r\nfollowing\r\n$1\r\n1\r\n" +
		"*4\r\n$7\r\nHINCRBY\r\n$3\r\nc:2\r\n$9\r\nfollowers\r\n$1\r\n1\r\n" +
		"*1\r\n$4\r\nEXEC\r\n"
	if got := string(AppendFollow(nil, "1", "2", "9")); got != want {
		t.Errorf("AppendFollow: got %q, want %q", got, want)
	}
}

func TestSkipReplyReadsWholeReplies(t *testing.T) {
	const replies = "+OK\r\n+QUEUED\r\n:1\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n:1\r\n*1\r\n$0\r\n\r\n*0\r\n"
	reader := bufio.NewReader(strings.NewReader(replies))
	for i := range 7 {
		if err := skipReply(reader); err != nil {
			t.Fatalf("skipReply of reply %d: got error %v, want none", i, err)
		}
	}
	if got := reader.Buffered(); got != 0 {
		t.Errorf("bytes that are left: got %d, want 0", got)
	}
}

func TestSkipReplyReturnsErrors(t *testing.T) {
	for reply, wantErr := range map[string]string{
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
			if err == nil || !strings.Contains(err.Error(), wantErr) {
				t.Errorf("skipReply: got error %v, want one with %q", err, wantErr)
			}
		})
	}
}
