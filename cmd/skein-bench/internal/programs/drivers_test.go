package programs

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

func TestParseWrk(t *testing.T) {
	for file, want := range map[string]struct {
		m   measure.Measurement
		err string
	}{
		"ok.txt":      {m: measure.Measurement{Value: 1276.23, P50: 0.276, P99: 13.74}},
		"refused.txt": {err: "1516 requests were answered with an error"},
		"broken.txt":  {err: "socket errors: connect 0, read 4127"},
		"nothing.txt": {err: "no rate in its output: unable to connect"},
	} {
		out, err := os.ReadFile(filepath.Join("testdata", "wrk", file))
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseWrk(out)
		check(t, file, m, err, want.m, want.err)
	}
}

func TestParseRedisBenchmark(t *testing.T) {
	for file, want := range map[string]struct {
		m   measure.Measurement
		err string
	}{
		"ok.csv":      {m: measure.Measurement{Value: 104166.66, P50: 0.239, P99: 0.687}},
		"refused.csv": {err: "not a table of one line"},
	} {
		out, err := os.ReadFile(filepath.Join("testdata", "redis-benchmark", file))
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseRedisBenchmark(out)
		check(t, file, m, err, want.m, want.err)
	}
}

func check(t *testing.T, name string, m measure.Measurement, err error, want measure.Measurement, wantErr string) {
	t.Helper()
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: error %v, want one with %q", name, err, wantErr)
		}
		return
	}
	if err != nil || m != want {
		t.Errorf("%s: %+v, %v; want %+v", name, m, err, want)
	}
}

func TestHTTPRequest(t *testing.T) {
	const want = "POST /p.S/M HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Type: application/json\r\n" +
		"Connect-Protocol-Version: 1\r\nContent-Length: 2\r\n\r\n{}"
	if got := string(HTTPRequest("127.0.0.1:1", "/p.S/M", "application/json", []byte("{}"))); got != want {
		t.Errorf("got %q", got)
	}
}

func TestWrkJob(t *testing.T) {
	dir := t.TempDir()
	j, err := NewWrkJob(dir, "check", "127.0.0.1:1", [][]byte{[]byte("ab"), []byte("c")})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "check.requests"))
	if err != nil || string(data) != "\x00\x00\x00\x02ab\x00\x00\x00\x01c" {
		t.Errorf("requests %q, %v", data, err)
	}
	script, err := os.ReadFile(j.script)
	if err != nil || !bytes.Contains(script, []byte(filepath.Join(dir, "check.requests"))) || bytes.Contains(script, []byte("FILE")) {
		t.Errorf("script %s, %v", script, err)
	}
}

func TestAppendFollow(t *testing.T) {
	const want = "*1\r\n$5\r\nMULTI\r\n" +
		"*4\r\n$4\r\nZADD\r\n$3\r\nf:1\r\n$1\r\n9\r\n$1\r\n2\r\n" +
		"*4\r\n$4\r\nZADD\r\n$3\r\nr:2\r\n$1\r\n9\r\n$1\r\n1\r\n" +
		"*4\r\n$7\r\nHINCRBY\r\n$3\r\nc:1\r\n$9\r\nfollowing\r\n$1\r\n1\r\n" +
		"*4\r\n$7\r\nHINCRBY\r\n$3\r\nc:2\r\n$9\r\nfollowers\r\n$1\r\n1\r\n" +
		"*1\r\n$4\r\nEXEC\r\n"
	if got := string(AppendFollow(nil, "1", "2", "9")); got != want {
		t.Errorf("got %q", got)
	}
}

func TestSkipReply(t *testing.T) {
	const good = "+OK\r\n+QUEUED\r\n:1\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n:1\r\n*1\r\n$0\r\n\r\n*0\r\n"
	r := bufio.NewReader(strings.NewReader(good))
	for i := range 7 {
		if err := skipReply(r); err != nil {
			t.Fatalf("reply %d: %v", i, err)
		}
	}
	if n := r.Buffered(); n != 0 {
		t.Errorf("%d bytes were left", n)
	}
	for in, want := range map[string]string{
		"-ERR no\r\n":      "redis: ERR no",
		"*2\r\n:1\r\n-E\r": "EOF",
		"*1\r\n-E x\r\n":   "redis: E x",
		"*-1\r\n":          "not executed",
		"?1\r\n":           "unknown reply",
		":1\n":             "malformed line",
		"$x\r\n":           "length",
		"":                 "EOF",
	} {
		if err := skipReply(bufio.NewReader(strings.NewReader(in))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}
