package bench

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// redisJob is one command that redis-benchmark repeats, with random ids in place of __rand_int__.
type redisJob struct {
	addr    address
	command []string
	// keyspace bounds the random numbers.
	keyspace int
	// rate is what the last run gave: it says how many requests fill the time of the next.
	rate float64
}

// run sends the command from some connections, without pipelining, for about a time.
func (j *redisJob) run(ctx context.Context, tool string, connections int, d time.Duration) (measurement, error) {
	if j.rate == 0 {
		m, err := j.send(ctx, tool, connections, 20_000)
		if err != nil {
			return m, err
		}
		j.rate = m.value
	}
	m, err := j.send(ctx, tool, connections, max(10_000, int(j.rate*d.Seconds())))
	j.rate = m.value
	return m, err
}

func (j *redisJob) send(ctx context.Context, tool string, connections, requests int) (measurement, error) {
	args := append([]string{
		"-h", j.addr.host, "-p", j.addr.port, "-c", strconv.Itoa(connections), "-n", strconv.Itoa(requests),
		"-r", strconv.Itoa(j.keyspace), "--csv",
	}, j.command...)
	cmd := exec.CommandContext(ctx, tool, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return measurement{}, fmt.Errorf("redis-benchmark %v: %w: %s%s", j.command, err, out, stderr.Bytes())
	}
	return parseRedisBenchmark(out)
}

// parseRedisBenchmark reads the output of redis-benchmark --csv for one command.
func parseRedisBenchmark(out []byte) (m measurement, err error) {
	table, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil || len(table) != 2 {
		return m, fmt.Errorf("redis-benchmark: not a table of one line: %w: %s", err, out)
	}
	for i, name := range table[0] {
		var field *float64
		switch name {
		case "rps":
			field = &m.value
		case "p50_latency_ms":
			field = &m.p50
		case "p99_latency_ms":
			field = &m.p99
		default:
			continue
		}
		if *field, err = strconv.ParseFloat(table[1][i], 64); err != nil {
			return m, fmt.Errorf("redis-benchmark: %s: %w", name, err)
		}
	}
	if m.value == 0 {
		return m, fmt.Errorf("redis-benchmark: no rate in its output: %s", out)
	}
	return m, nil
}
