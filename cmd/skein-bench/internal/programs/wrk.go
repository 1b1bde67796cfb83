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

// wrkScript hands out the requests of a file, over and over; FILE is replaced by its path.
//
//go:embed requests.lua
var wrkScript []byte

// WrkJob is a set of ready-made HTTP requests that wrk sends in turn.
type WrkJob struct{ script, url string }

// NewWrkJob writes the requests, which are HTTP as it goes over the wire, and the script that sends them.
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

// HTTPRequest writes a unary call of the Connect protocol as it goes over the wire.
func HTTPRequest(addr, procedure, contentType string, body []byte) []byte {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nConnect-Protocol-Version: 1\r\n"+
		"Content-Length: %d\r\n\r\n", procedure, addr, contentType, len(body))
	return append([]byte(head), body...)
}

// Run sends requests from some connections for a time, in one thread, as redis-benchmark does.
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

var (
	wrkRate           = regexp.MustCompile(`(?m)^Requests/sec: +([0-9.]+)$`)
	wrkPercentile     = regexp.MustCompile(`(?m)^ +(50|99)% +([0-9.]+)(us|ms|s|m)$`)
	wrkErrorResponses = regexp.MustCompile(`(?m)^ +Non-2xx or 3xx responses: ([0-9]+)$`)
	wrkSocketErrors   = regexp.MustCompile(`(?m)^ +Socket errors: (.*)$`)
)

// parseWrk reads the output of wrk --latency. A run in which any request failed is no measurement.
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
	if m.Value, err = strconv.ParseFloat(string(rate[1]), 64); err != nil || m.Value == 0 {
		return m, fmt.Errorf("wrk: no request was answered: %s", out)
	}
	for _, q := range wrkPercentile.FindAllSubmatch(out, -1) {
		v, err := strconv.ParseFloat(string(q[2]), 64)
		if err != nil {
			return m, fmt.Errorf("wrk: latency: %w", err)
		}
		v *= map[string]float64{"us": 0.001, "ms": 1, "s": 1000, "m": 60_000}[string(q[3])]
		if string(q[1]) == "50" {
			m.P50 = v
		} else {
			m.P99 = v
		}
	}
	return m, nil
}
