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

// logSize returns the size of the logs. It is small in short tests, because the race detector makes
// the work ten times as long.
func logSize() int {
	if testing.Short() {
		return 5000
	}
	return 10_000
}

func newBench(t *testing.T) *measure.Bench {
	t.Helper()
	return &measure.Bench{
		Opts: measure.Options{Replayed: logSize(), Runs: 1, Time: 100 * time.Millisecond}, Dir: t.TempDir(), Report: &measure.Report{},
	}
}

// TestJobsReadTheWholeLog makes small logs, and runs all jobs of the bench with them in this
// process. It does not need Redis.
func TestJobsReadTheWholeLog(t *testing.T) {
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
			r := mustRunJob(t, job)
			if r.Events != l.eventCount || r.Seconds <= 0 || r.ProcessorSeconds < 0 || r.Memory < 1<<20 {
				t.Errorf("%+v: expected %d events, and a time and memory above 0, got %+v", job, l.eventCount, r)
			}
		}
		if l.follows == nil {
			continue
		}
		r := mustRunJob(t, replayJob{Work: workAudit, Log: l.dir, Threshold: l.threshold})
		if int(r.Checks) < b.Opts.Replayed/10 || r.AuditSeconds <= 0 || r.VerifySeconds <= 0 {
			t.Errorf("audit: expected many checks and times above 0, got %+v", r)
		}
	}
	checkBytes(t, b.Report)
}

// mustRunJob encodes a job, runs it in this process, and decodes the result.
func mustRunJob(t *testing.T, job replayJob) (r replayResult) {
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

// checkBytes checks the rows of bytes of an event.
func checkBytes(t *testing.T, report *measure.Report) {
	t.Helper()
	for _, row := range report.Rows {
		if a, s := row.Series[0].Median, row.Series[1].Median; a < 1 || a > 30 || s < a {
			t.Errorf("%s: expected 1 to 30 bytes in the archive and more in the stream, got %v and %v", row.ID, a, s)
		}
	}
}

func TestReplayJobRefusesBadInput(t *testing.T) {
	dir := t.TempDir()
	for job, want := range map[string]string{
		`{`:                                    "job: ",
		`{"Work":"dance","Log":"` + dir + `"}`: "no work is named",
		`{"Work":"rebuild","Archive":true,"Projection":"x","Log":"` + dir + `"}`:     "no projection is named",
		`{"Work":"rebuild","Archive":true,"Projection":"graph","Log":"` + dir + `"}`: "there is no archive",
	} {
		if err := RunReplayJob(t.Context(), job, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: expected an error with %q, got %v", job, want, err)
		}
	}
	remaining, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range remaining {
		if strings.HasPrefix(e.Name(), "job-") {
			t.Errorf("expected that temporary directories are removed, found %s", e.Name())
		}
	}
}
