package programs

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// RedisBenchmarkJob is a command that redis-benchmark sends again and again. It replaces each
// __rand_int__ by a random number of 12 digits.
type RedisBenchmarkJob struct {
	Addr    Address
	Command []string
	// Keyspace is the number below which the random numbers are.
	Keyspace int
	// rate is how many commands per second were answered in the last run. redis-benchmark takes a
	// number of commands and not a time, so the next run needs the rate to last as long as it
	// should.
	rate float64
}

// Run sends the command over several connections for about the time d. Each connection waits for
// the reply before it sends the next command. tool is the path of redis-benchmark.
func (j *RedisBenchmarkJob) Run(ctx context.Context, tool string, connections int, d time.Duration) (measure.Measurement, error) {
	// Before the first run, a short run finds the rate.
	if j.rate == 0 {
		m, err := j.sendRequests(ctx, tool, connections, 20_000)
		if err != nil {
			return m, err
		}
		j.rate = m.Value
	}

	m, err := j.sendRequests(ctx, tool, connections, max(10_000, int(j.rate*d.Seconds())))
	j.rate = m.Value
	return m, err
}

// sendRequests runs redis-benchmark with a number of commands.
func (j *RedisBenchmarkJob) sendRequests(ctx context.Context, tool string, connections, requests int) (measure.Measurement, error) {
	args := append([]string{
		"-h", j.Addr.host, "-p", j.Addr.port, "-c", strconv.Itoa(connections), "-n", strconv.Itoa(requests),
		"-r", strconv.Itoa(j.Keyspace), "--csv",
	}, j.Command...)
	cmd := exec.CommandContext(ctx, tool, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return measure.Measurement{}, fmt.Errorf("redis-benchmark %v: %w: %s%s", j.Command, err, out, stderr.Bytes())
	}
	return parseRedisBenchmark(out)
}

// parseRedisBenchmark reads the output of redis-benchmark --csv for one command: a line with the
// names of the columns, and one with the values.
func parseRedisBenchmark(out []byte) (m measure.Measurement, err error) {
	table, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil || len(table) != 2 {
		return m, fmt.Errorf("redis-benchmark: not a table of one line: %w: %s", err, out)
	}
	for i, name := range table[0] {
		var field *float64
		switch name {
		case "rps":
			field = &m.Value
		case "p50_latency_ms":
			field = &m.P50
		case "p99_latency_ms":
			field = &m.P99
		default:
			continue
		}
		if *field, err = strconv.ParseFloat(table[1][i], 64); err != nil {
			return m, fmt.Errorf("redis-benchmark: %s: %w", name, err)
		}
	}
	if m.Value == 0 {
		return m, fmt.Errorf("redis-benchmark: no rate in its output: %s", out)
	}
	return m, nil
}
