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

// newBench returns a bench that measures small logs once.
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
	for _, log := range replayLogs(b) {
		log.dir = t.TempDir()
		if err := makeLog(t.Context(), b, log); err != nil {
			t.Fatalf("log of %s: %v", log.projection, err)
		}
		if least, most := b.Opts.Replayed/2, 2*b.Opts.Replayed; log.eventCount < least || log.eventCount > most {
			t.Errorf("events in the log of %s: got %d, want %d to %d", log.projection, log.eventCount, least, most)
		}
		measureLogBytes(b, log)

		// Build a store from the archive, and from the stream.
		for _, fromArchive := range []bool{true, false} {
			job := replayJob{
				Work: workRebuild, Archive: fromArchive, Log: log.dir, Projection: log.projection, Threshold: log.threshold,
			}
			r := mustRunJob(t, job)
			if r.Events != log.eventCount || r.Seconds <= 0 || r.ProcessorSeconds < 0 || r.Memory < 1<<20 {
				t.Errorf("%+v: got %+v, want %d events, a time above 0, and at least 1 MiB of memory", job, r, log.eventCount)
			}
		}

		// Only a log of follows is audited.
		if log.follows == nil {
			continue
		}
		r := mustRunJob(t, replayJob{Work: workAudit, Log: log.dir, Threshold: log.threshold})
		if leastChecks := b.Opts.Replayed / 10; int(r.Checks) < leastChecks || r.AuditSeconds <= 0 || r.VerifySeconds <= 0 {
			t.Errorf("audit: got %+v, want at least %d checks and times above 0", r, leastChecks)
		}
	}
	checkEventBytes(t, b.Report)
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

// checkEventBytes checks the rows that say how many bytes an event takes. There must be some.
func checkEventBytes(t *testing.T, report *measure.Report) {
	t.Helper()
	if len(report.Rows) == 0 {
		t.Error("rows of bytes per event: got none, want some")
	}
	for _, row := range report.Rows {
		archived := row.Series[0].Median
		streamed := row.Series[1].Median
		if archived < 1 || archived > 30 {
			t.Errorf("%s in the archive: got %v bytes, want 1 to 30", row.ID, archived)
		}
		if streamed < archived {
			t.Errorf("%s in the stream: got %v bytes, want at least %v as in the archive", row.ID, streamed, archived)
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
		err := RunReplayJob(t.Context(), job, new(bytes.Buffer))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("RunReplayJob(%s): got error %v, want one with %q", job, err, want)
		}
	}

	// No job may leave its temporary directory behind.
	remaining, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range remaining {
		if strings.HasPrefix(entry.Name(), "job-") {
			t.Errorf("temporary directory: got %s, want none", entry.Name())
		}
	}
}
