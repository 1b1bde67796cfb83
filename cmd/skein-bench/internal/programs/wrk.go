package programs

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// wrkScript is a script for wrk that sends the requests in a file, one after the other and then
// again from the first. The word FILE stands for the path of that file.
//
//go:embed requests.lua
var wrkScript []byte

// WrkJob has encoded HTTP requests, in a file, that wrk sends one after the other.
type WrkJob struct{ script, url string }

// NewWrkJob writes encoded HTTP requests and the script that sends them into files in dir, whose
// names begin with name.
func NewWrkJob(dir, name, addr string, requests [][]byte) (*WrkJob, error) {
	var data []byte
	for _, r := range requests {
		data = binary.BigEndian.AppendUint32(data, uint32(len(r)))
		data = append(data, r...)
	}
	file := filepath.Join(dir, name+".requests")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}

	j := &WrkJob{script: filepath.Join(dir, name+".lua"), url: "http://" + addr}
	script := bytes.ReplaceAll(wrkScript, []byte("FILE"), []byte(strconv.Quote(file)))
	return j, os.WriteFile(j.script, script, 0o600)
}

// HTTPRequest returns the encoded HTTP request of a unary call of the Connect protocol.
func HTTPRequest(addr, procedure, contentType string, body []byte) []byte {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nConnect-Protocol-Version: 1\r\n"+
		"Content-Length: %d\r\n\r\n", procedure, addr, contentType, len(body))
	return append([]byte(head), body...)
}

// Run sends requests over several connections for the time d, which is rounded to seconds. It uses
// one thread, as redis-benchmark does. wrk is the path of the program.
func (j *WrkJob) Run(ctx context.Context, wrk string, connections int, d time.Duration) (measure.Measurement, error) {
	seconds := max(1, int(d.Round(time.Second)/time.Second))
	cmd := exec.CommandContext(ctx, wrk, "--threads", "1", "--connections", strconv.Itoa(connections),
		"--duration", fmt.Sprintf("%ds", seconds), "--latency", "--script", j.script, j.url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return measure.Measurement{}, fmt.Errorf("wrk: %w: %s", err, out)
	}
	return parseWrk(out)
}

// These match lines in the output of wrk.
var (
	wrkRate           = regexp.MustCompile(`(?m)^Requests/sec: +([0-9.]+)$`)
	wrkPercentile     = regexp.MustCompile(`(?m)^ +(50|99)% +([0-9.]+)(us|ms|s|m)$`)
	wrkErrorResponses = regexp.MustCompile(`(?m)^ +Non-2xx or 3xx responses: ([0-9]+)$`)
	wrkSocketErrors   = regexp.MustCompile(`(?m)^ +Socket errors: (.*)$`)
)

// parseWrk reads the output of wrk --latency. It returns an error if a request failed, because such
// a run measures nothing.
func parseWrk(out []byte) (m measure.Measurement, err error) {
	if failed := wrkErrorResponses.FindSubmatch(out); failed != nil {
		return m, fmt.Errorf("wrk: %s requests were answered with an error", failed[1])
	}
	if failed := wrkSocketErrors.FindSubmatch(out); failed != nil {
		return m, fmt.Errorf("wrk: socket errors: %s", failed[1])
	}

	rate := wrkRate.FindSubmatch(out)
	if rate == nil {
		return m, fmt.Errorf("wrk: no rate in its output: %s", out)
	}
	m.Value, err = strconv.ParseFloat(string(rate[1]), 64)
	if err != nil || m.Value == 0 {
		return m, fmt.Errorf("wrk: no request was answered: %s", out)
	}

	for _, q := range wrkPercentile.FindAllSubmatch(out, -1) {
		percent, value := string(q[1]), string(q[2])
		latency, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return m, fmt.Errorf("wrk: latency: %w", err)
		}
		millis := latency * map[string]float64{"us": 0.001, "ms": 1, "s": 1000, "m": 60_000}[string(q[3])]
		if percent == "50" {
			m.P50 = millis
		} else {
			m.P99 = millis
		}
	}
	return m, nil
}
