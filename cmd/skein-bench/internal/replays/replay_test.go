package replays

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// replayed is the size of the logs: the race detector makes the work ten times as long.
func replayed() int {
	if testing.Short() {
		return 5000
	}
	return 10_000
}

func newBench(t *testing.T) *measure.Bench {
	t.Helper()
	return &measure.Bench{
		Opts: measure.Options{Replayed: replayed(), Runs: 1, Time: 100 * time.Millisecond}, Dir: t.TempDir(), Report: &measure.Report{},
	}
}

// TestReplay makes small logs and does with them what the bench does, but for Redis, in this process.
func TestReplay(t *testing.T) {
	b := newBench(t)
	for _, l := range replayLogs(b) {
		l.dir = t.TempDir()
		if err := makeLog(t.Context(), b, l); err != nil {
			t.Fatal(l.projection, err)
		}
		if l.eventCount < b.Opts.Replayed/2 || l.eventCount > 2*b.Opts.Replayed {
			t.Errorf("%s: %d events", l.projection, l.eventCount)
		}
		measureLogBytes(b, l)
		for _, job := range []replayJob{
			{Work: workRebuild, Archive: true},
			{Work: workRebuild},
		} {
			job.Log, job.Projection, job.Threshold = l.dir, l.projection, l.threshold
			r := runJob(t, job)
			if r.Events != l.eventCount || r.Seconds <= 0 || r.ProcessorSeconds < 0 || r.Memory < 1<<20 {
				t.Errorf("%+v: %+v", job, r)
			}
		}
		if l.follows == nil {
			continue
		}
		r := runJob(t, replayJob{Work: workAudit, Log: l.dir, Threshold: l.threshold})
		if int(r.Checks) < b.Opts.Replayed/10 || r.AuditSeconds <= 0 || r.VerifySeconds <= 0 {
			t.Errorf("audit: %+v", r)
		}
	}
	checkBytes(t, b.Report)
}

// runJob does a job by way of its encoding, as in a process of its own.
func runJob(t *testing.T, job replayJob) (r replayResult) {
	t.Helper()
	encoded, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := RunReplayJob(t.Context(), string(encoded), &out); err != nil {
		t.Fatalf("%+v: %v", job, err)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func checkBytes(t *testing.T, report *measure.Report) {
	t.Helper()
	for _, row := range report.Rows {
		if a, s := row.Series[0].Median, row.Series[1].Median; a < 1 || a > 30 || s < a {
			t.Errorf("%s: %v bytes in the archive, %v in the stream", row.ID, a, s)
		}
	}
}

func TestReplayJobIsRefused(t *testing.T) {
	dir := t.TempDir()
	for job, want := range map[string]string{
		`{`:                                    "job: ",
		`{"Work":"dance","Log":"` + dir + `"}`: "no work is named",
		`{"Work":"rebuild","Archive":true,"Projection":"x","Log":"` + dir + `"}`:     "no projection is named",
		`{"Work":"rebuild","Archive":true,"Projection":"graph","Log":"` + dir + `"}`: "there is no archive",
	} {
		if err := RunReplayJob(t.Context(), job, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", job, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if strings.HasPrefix(e.Name(), "job-") {
			t.Errorf("%s was left", e.Name())
		}
	}
}
