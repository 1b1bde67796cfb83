package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// replayed is the size of the logs: the race detector makes the work ten times as long.
func replayed() int {
	if testing.Short() {
		return 5000
	}
	return 10_000
}

// TestReplay makes small logs and does with them what the bench does, but for Redis, in this process.
func TestReplay(t *testing.T) {
	b := &bench{opts: Options{Replayed: replayed(), Runs: 1, Time: 100 * time.Millisecond}, dir: t.TempDir(), report: &Report{}}
	for _, l := range b.replayLogs() {
		l.dir = t.TempDir()
		if err := b.makeLog(t.Context(), l); err != nil {
			t.Fatal(l.projection, err)
		}
		if l.events < b.opts.Replayed/2 || l.events > 2*b.opts.Replayed {
			t.Errorf("%s: %d events", l.projection, l.events)
		}
		b.replayBytes(l)
		for _, job := range []replayJob{
			{Work: workRebuild, Archive: true},
			{Work: workRebuild},
			{Work: workRead, Archive: true, All: true},
			{Work: workRead},
			{Work: workVerify},
		} {
			job.Log, job.Projection, job.Threshold = l.dir, l.projection, l.threshold
			r := runJob(t, job)
			if job.Work != workVerify && r.Events != l.events || r.Seconds <= 0 || r.Processor < 0 || r.Memory < 1<<20 {
				t.Errorf("%+v: %+v", job, r)
			}
		}
		facts := runJob(t, replayJob{Work: workRead, Log: l.dir, Projection: "graph", Archive: true})
		if want := map[string]int{"graph": 10, "seen": 0, "counters": 3}[l.projection]; l.projection != "inbox" &&
			facts.Events != l.events/10*want {
			t.Errorf("%s: the graph reads %d of %d events", l.projection, facts.Events, l.events)
		}
		if l.follows == nil {
			continue
		}
		r := runJob(t, replayJob{Work: workAudit, Log: l.dir, Threshold: l.threshold})
		if int(r.Checks) < b.opts.Replayed/10 || r.Audits <= 0 || r.Shadows <= 0 {
			t.Errorf("audit: %+v", r)
		}
	}
	checkBytes(t, b.report)
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

func checkBytes(t *testing.T, report *Report) {
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
		`{"Work":"read","Archive":true,"Log":"` + dir + `"}`:                        "there is no archive",
		`{"Work":"rebuild","Archive":true,"Projection":"x","Log":"` + dir + `"}`:    "no projection is named",
		`{"Work":"verify","Archive":true,"Projection":"graph","Log":"` + dir + `"}`: "there is no archive",
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

// TestReplayCutOver rebuilds every projection under load.
func TestReplayCutOver(t *testing.T) {
	b := &bench{opts: Options{Replayed: replayed(), Runs: 1, Time: 100 * time.Millisecond}, dir: t.TempDir(), report: &Report{}}
	if err := b.replayCutOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows := b.report.Rows
	if len(rows) != 3 || len(rows[0].Series) != 5 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		for _, s := range row.Series {
			if len(s.Values) != 1 || s.Median <= 0 {
				t.Errorf("%s: %s: %v", row.ID, s.Name, s.Values)
			}
		}
	}
	if left, err := os.ReadDir(b.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWriteAOF(t *testing.T) {
	g := newGraph(100, 300, 1)
	path := filepath.Join(t.TempDir(), aofName)
	if err := g.writeAOF(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := string(appendFollow(nil, userID(g.edges[0].follower), userID(g.edges[0].followee), "1700000000000000"))
	if want := "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n" + first; !strings.HasPrefix(string(data), want) {
		t.Errorf("%.200s", data)
	}
	if n := bytes.Count(data, []byte("EXEC")); n != 300 {
		t.Errorf("%d transactions", n)
	}
}

func TestLoadTook(t *testing.T) {
	took, err := loadTook("1:M * DB loaded from base file appendonly.aof.1.base.aof: 9.000 seconds\n" +
		"1:M * DB loaded from append only file: 1.250 seconds\n")
	if err != nil || took != 1250*time.Millisecond {
		t.Errorf("%v, %v", took, err)
	}
	if took, err := loadTook("DB loaded from append only file: 0.000 seconds"); err != nil || took != time.Millisecond {
		t.Errorf("%v, %v", took, err)
	}
	if _, err := loadTook("Ready to accept connections"); err == nil {
		t.Error("no line, no error")
	}
}
