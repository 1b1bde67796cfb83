package replays

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/audit"
	"github.com/skein-feed/skein/replay/verify"
)

// What a job does.
const (
	workRebuild = "rebuild"
	workAudit   = "audit"
)

// replayJob is one measurement with a log, in a process of its own: what others left in memory is no part of it.
type replayJob struct {
	Work string
	// Log is the directory that makeLog filled.
	Log string
	// Projection is rebuilt.
	Projection string
	// Archive: the archive is read, not the stream.
	Archive bool
	// Threshold is that of inbox.
	Threshold int64
	// Memory is what a rebuild may take; 0 means the default.
	Memory int
	// Into is where a rebuilt store stays; empty means it is removed.
	Into string
}

// replayResult is what a job found. Times are in seconds.
type replayResult struct {
	Events int
	// Seconds is how long it took, Processor the time of all processors meanwhile.
	Seconds, ProcessorSeconds float64
	// Memory is the greatest resident memory of the process, in bytes.
	Memory float64
	// Of the work audit: entities that were checked, and processor time of the audits and of the shadows.
	Checks                      uint64
	AuditSeconds, VerifySeconds float64
}

// RunReplayJob does a job, which the bench has encoded, and writes the result.
func RunReplayJob(ctx context.Context, encoded string, out io.Writer) error {
	var job replayJob
	if err := json.Unmarshal([]byte(encoded), &job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	r, err := job.run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// do does a job in a process of its own; in this one if the program is not known.
func runInOwnProcess(ctx context.Context, b *measure.Bench, job replayJob) (r replayResult, err error) {
	if b.Opts.Self == "" {
		return job.run(ctx)
	}
	encoded, err := json.Marshal(job)
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, b.Opts.Self, "replay-job", "--job", string(encoded))
	cmd.Env = programs.WithoutSkeinSettings(os.Environ())
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s of %s: %w\n%s", job.Work, job.Projection, err, said.String())
	}
	return r, json.Unmarshal(out, &r)
}

func (j *replayJob) run(ctx context.Context) (r replayResult, err error) {
	dir, err := os.MkdirTemp(j.Log, "job-")
	if err != nil {
		return r, err
	}
	scratch := dir
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	switch j.Work {
	case workRebuild:
		if j.Into != "" {
			dir = j.Into
		}
		err = j.rebuild(ctx, dir, &r)
	case workAudit:
		err = j.audit(ctx, dir, &r)
	default:
		err = fmt.Errorf("no work is named %q", j.Work)
	}
	r.Memory = measure.PeakMemory()
	return r, err
}

// project returns what makes the projection.
func (j *replayJob) constructorOf(name string) (func() projections.Projection, error) {
	settings := all.Settings{Inbox: inbox.DefaultSettings()}
	settings.Inbox.Threshold = j.Threshold
	for _, p := range all.Constructors(settings) {
		if p().Name() == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no projection is named %q", name)
}

// rebuild builds a store as a rebuild does, but that nothing follows the log meanwhile.
func (j *replayJob) rebuild(ctx context.Context, dir string, r *replayResult) (err error) {
	p, err := j.constructorOf(j.Projection)
	if err != nil {
		return err
	}
	b, err := build.New(build.Options{
		FS: vfs.Default, Dir: filepath.Join(dir, p().Name(), "000001"), New: p, Memory: j.Memory,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return j.measure(ctx, r, b.Add, func() error { return b.Finish(ctx) })
}

// measure reads the log, and takes the time until all is folded and ended.
func (j *replayJob) measure(ctx context.Context, r *replayResult, fold func([]*events.Envelope) error, end func() error) (err error) {
	next, stop, err := j.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	clock, err := startStopwatch()
	if err != nil {
		return err
	}
	for {
		envs, err := next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := fold(envs); err != nil {
			return err
		}
		for _, env := range envs {
			r.Events += len(env.Events)
		}
	}
	if err := end(); err != nil {
		return err
	}
	r.Seconds, r.ProcessorSeconds = clock.read()
	return nil
}

// clock measures time, and that of the processors.
type stopwatch struct {
	begin time.Time
	used  time.Duration
}

func startStopwatch() (stopwatch, error) {
	used, err := measure.CPUTime()
	return stopwatch{time.Now(), used}, err
}

func (c stopwatch) read() (seconds, processor float64) {
	used, _ := measure.CPUTime() // it worked a moment ago
	return time.Since(c.begin).Seconds(), (used - c.used).Seconds()
}

// bytesPerRead is how many bytes of the log are read at a time, as a rebuild does.
const bytesPerRead = 8 << 20

// open returns a function that reads the log, up to io.EOF, and one that ends the reading.
func (j *replayJob) open(ctx context.Context) (next func(context.Context) ([]*events.Envelope, error), stop func() error, err error) {
	if j.Archive {
		return j.openArchive(ctx)
	}
	log, err := eventlog.Open(ctx, eventlog.Config{Dir: filepath.Join(j.Log, "log"), Existing: true})
	if err != nil {
		return nil, nil, err
	}
	head, err := log.Head(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, workload.CloseLog(ctx, log))
	}
	r, err := readStream(ctx, log)
	if err != nil {
		return nil, nil, errors.Join(err, workload.CloseLog(ctx, log))
	}
	at := uint64(0)
	next = func(ctx context.Context) (envs []*events.Envelope, err error) {
		if at >= head.Last {
			return nil, io.EOF
		}
		if envs, err = r.Next(ctx, bytesPerRead); err == nil {
			at = envs[len(envs)-1].Seq()
		}
		return envs, err
	}
	return next, func() error { return errors.Join(r.stop(), workload.CloseLog(ctx, log)) }, nil
}

func (j *replayJob) openArchive(
	ctx context.Context,
) (next func(context.Context) ([]*events.Envelope, error), stop func() error, err error) {
	target, err := bucket.NewDir(filepath.Join(j.Log, "archive"))
	if err != nil {
		return nil, nil, err
	}
	id, ok, err := archive.LogOf(ctx, target)
	if err != nil || !ok {
		return nil, nil, errors.Join(err, errors.New("there is no archive"))
	}
	a, err := archive.Open(ctx, target, id)
	if err != nil {
		return nil, nil, err
	}
	p, err := j.constructorOf(j.Projection)
	if err != nil {
		return nil, nil, err
	}
	kinds := events.Kinds(p().Kinds()...) | events.Kinds(events.BackfillClosed)
	r, err := a.Read(ctx, events.Cursor{Log: id}, kinds)
	if err != nil {
		return nil, nil, err
	}
	next = func(ctx context.Context) ([]*events.Envelope, error) { return r.Next(ctx, bytesPerRead) }
	return next, func() error { r.Close(); return nil }, nil
}

// replayStores are open stores with all of a log folded, and the log.
type replayStores struct {
	log    *eventlog.Log
	hub    *eventlog.Hub
	cancel context.CancelFunc
	ended  chan error
	cache  *store.Cache
	byName map[string]*store.Store
}

// openStores builds projections from the archive and opens the log.
func (j *replayJob) openStores(ctx context.Context, dir string, names ...string) (s *replayStores, err error) {
	s = &replayStores{cache: store.NewCache(workload.CacheBytes), byName: map[string]*store.Store{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	for _, name := range names {
		built := replayJob{Work: workRebuild, Log: j.Log, Projection: name, Archive: true, Threshold: j.Threshold}
		if err := built.rebuild(ctx, dir, new(replayResult)); err != nil {
			return s, err
		}
		p, err := j.constructorOf(name)
		if err != nil {
			return s, err
		}
		if s.byName[name], err = store.Open(store.Options{Dir: dir, Projection: p(), Cache: s.cache}); err != nil {
			return s, err
		}
	}
	if s.log, err = eventlog.Open(ctx, eventlog.Config{Dir: filepath.Join(j.Log, "log"), Existing: true}); err != nil {
		return s, err
	}
	hub, ended := eventlog.NewHub(s.log, eventlog.HubOptions{}), make(chan error, 1)
	ctx, s.cancel = context.WithCancel(ctx)
	go func() { ended <- hub.Run(ctx) }()
	s.hub, s.ended = hub, ended
	return s, nil
}

func (s *replayStores) close(ctx context.Context) (err error) {
	if s.hub != nil {
		s.cancel()
		err = <-s.ended
	}
	for _, store := range s.byName {
		if store != nil {
			err = errors.Join(err, store.Close())
		}
	}
	s.cache.Unref()
	if s.log != nil {
		err = errors.Join(err, workload.CloseLog(ctx, s.log))
	}
	return err
}

// check verifies a store, and returns the processor time of that. The store must be equal to the log.
func (j *replayJob) verifyStore(ctx context.Context, dir, name string, s *replayStores) (processor float64, err error) {
	p, err := j.constructorOf(name)
	if err != nil {
		return 0, err
	}
	clock, err := startStopwatch()
	if err != nil {
		return 0, err
	}
	report, err := verify.Verify(ctx, s.byName[name], verify.Options{
		Dir: filepath.Join(dir, "shadow"), New: p, Subscribe: workload.SubscribeToLog(s.log, s.hub),
		Disk: func() (store, free uint64, err error) { return s.byName[name].Status().DiskBytes, 1 << 60, nil },
	})
	if err == nil && !report.Equal {
		err = errors.New(report.String())
	}
	_, processor = clock.read()
	return processor, err
}

// audit goes once round all shards, as the auditor does, and verifies each store.
func (j *replayJob) audit(ctx context.Context, dir string, r *replayResult) (err error) {
	names := []string{"graph", "inbox", "counters"}
	s, err := j.openStores(ctx, dir, names...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	clock, err := startStopwatch()
	if err != nil {
		return err
	}
	for shard := range events.Shard(events.NumShards) {
		if err := s.auditShard(ctx, shard, r); err != nil {
			return err
		}
	}
	r.Seconds, r.AuditSeconds = clock.read()
	for _, name := range names {
		processor, err := j.verifyStore(ctx, dir, name, s)
		if err != nil {
			return err
		}
		r.VerifySeconds += processor
	}
	return nil
}

func (s *replayStores) auditShard(ctx context.Context, shard events.Shard, r *replayResult) (err error) {
	const feed = 200 // the auditor's limit in a round
	a, err := audit.Open(ctx, s.byName["graph"], s.byName["inbox"], s.byName["counters"], audit.Limits{Feed: feed, FeedTurns: audit.FeedTurns})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	err = a.Shard(ctx, shard)
	r.Checks += a.Checks
	if found := a.Findings(); err == nil && len(found) > 0 {
		err = fmt.Errorf("the auditor found %v", found[0])
	}
	return err
}
