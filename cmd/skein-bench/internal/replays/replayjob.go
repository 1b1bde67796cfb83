package replays

import (
	"bytes"
	"cmp"
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

// The kinds of jobs.
const (
	workRebuild = "rebuild"
	workAudit   = "audit"
)

// replayJob is one measurement with a log. It runs in a process of its own, so that memory of other
// measurements does not count. The job is passed to that process as JSON.
type replayJob struct {
	Work string
	// Log is the data directory with the log that is read.
	Log string
	// Projection is the name of the projection that is rebuilt.
	Projection string
	// Archive says that a rebuild reads the archive, and not the stream.
	Archive bool
	// Threshold is the number of followers from which on the projection inbox does not push the
	// pins of a user.
	Threshold int64
	// Memory is how many bytes a rebuild may use; 0 means the default.
	Memory int
	// Into is the directory in which a rebuilt store stays. If it is empty, the store is removed.
	Into string
}

// newRebuildJob returns the job that builds the store of a projection from the archive in a data
// directory, as a service with its default settings does.
func newRebuildJob(b *measure.Bench, dataDir, projection string) replayJob {
	return replayJob{
		Work:       workRebuild,
		Log:        dataDir,
		Projection: projection,
		Archive:    true,
		Threshold:  inbox.DefaultSettings().Threshold,
		Memory:     b.Opts.RebuildMemory,
	}
}

// replayResult is the result of a job.
type replayResult struct {
	// Events is how many events were read.
	Events int
	// Seconds is the time that the job took, and ProcessorSeconds the processor time that all
	// threads used in it.
	Seconds, ProcessorSeconds float64
	// Memory is the greatest resident memory of the process, in bytes.
	Memory float64
	// StoreBytes is the size of the store that a rebuild has made. BuildBytes also has the
	// temporary files that it then removes.
	StoreBytes, BuildBytes int64
	// Checks is how many checks the auditor made. AuditSeconds and VerifySeconds are the processor
	// time of its audits and of verifying the stores.
	Checks                      uint64
	AuditSeconds, VerifySeconds float64
}

// checkEventCount returns an error unless the job has read all events of its log. A rebuild that
// stopped early would look fast.
func (r replayResult) checkEventCount(events int) error {
	if r.Events != events {
		return fmt.Errorf("%d events were read, not %d", r.Events, events)
	}
	return nil
}

// RunReplayJob does a job that another process of the bench has encoded, and writes the result as
// JSON.
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

// runInOwnProcess does a job in a new process. If the path of this program is not known, as in
// tests, it does the job in this process.
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
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s of %s: %w\n%s", job.Work, job.Projection, err, stderr.String())
	}
	return r, json.Unmarshal(out, &r)
}

// run does the job in this process.
func (j *replayJob) run(ctx context.Context) (r replayResult, err error) {
	temporary, err := os.MkdirTemp(j.Log, "job-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()

	switch j.Work {
	case workRebuild:
		err = j.rebuild(ctx, cmp.Or(j.Into, temporary), &r)
	case workAudit:
		err = j.audit(ctx, temporary, &r)
	default:
		err = fmt.Errorf("no work is named %q", j.Work)
	}
	r.Memory = measure.PeakMemory()
	return r, err
}

// constructorOf returns the function that makes the projection with a name.
func (j *replayJob) constructorOf(name string) (func() projections.Projection, error) {
	settings := all.Settings{Inbox: inbox.DefaultSettings()}
	settings.Inbox.Threshold = j.Threshold
	for _, newProjection := range all.Constructors(settings) {
		if newProjection().Name() == name {
			return newProjection, nil
		}
	}
	return nil, fmt.Errorf("no projection is named %q", name)
}

// rebuild builds a store in a directory as a rebuild of a service does. In a service, the store
// then also follows the log.
func (j *replayJob) rebuild(ctx context.Context, dir string, r *replayResult) (err error) {
	newProjection, err := j.constructorOf(j.Projection)
	if err != nil {
		return err
	}
	b, err := build.New(build.Options{
		FS:     vfs.Default,
		Dir:    filepath.Join(dir, newProjection().Name(), "000001"),
		New:    newProjection,
		Memory: j.Memory,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := j.measure(ctx, r, b.Add, func() error { return b.Finish(ctx) }); err != nil {
		return err
	}

	stores := filepath.Join(dir, newProjection().Name())
	r.BuildBytes, err = measure.TreeBytes(stores)
	if err != nil {
		return err
	}
	r.StoreBytes, err = measure.TreeBytes(filepath.Join(stores, "000001"))
	return err
}

// measure reads the whole log and passes it to fold, then calls end, and measures the time of all
// that.
func (j *replayJob) measure(ctx context.Context, r *replayResult, fold func([]*events.Envelope) error, end func() error) (err error) {
	next, stop, err := j.openLog(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	watch, err := measure.StartStopwatch()
	if err != nil {
		return err
	}
	for {
		envs, err := next(ctx)
		if errors.Is(err, io.EOF) {
			break // the whole log was read
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

	elapsed, processor := watch.Read()
	r.Seconds = elapsed.Seconds()
	r.ProcessorSeconds = processor.Seconds()
	return nil
}

// bytesPerRead is how many bytes of the log are read at a time, as many as in a rebuild.
const bytesPerRead = 8 << 20

// openLog opens the archive or the stream. It returns a function that returns the next envelopes,
// or io.EOF at the end of the log, and a function that closes the log.
func (j *replayJob) openLog(ctx context.Context) (next func(context.Context) ([]*events.Envelope, error), stop func() error, err error) {
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
	stream, err := subscribeFromStart(ctx, log)
	if err != nil {
		return nil, nil, errors.Join(err, workload.CloseLog(ctx, log))
	}

	// A subscription waits at the end of the log, so next must know where the log ends.
	lastSeq := uint64(0)
	next = func(ctx context.Context) ([]*events.Envelope, error) {
		if lastSeq >= head.Last {
			return nil, io.EOF
		}
		envs, err := stream.Next(ctx, bytesPerRead)
		if err != nil {
			return nil, err
		}
		lastSeq = envs[len(envs)-1].Seq()
		return envs, nil
	}
	return next, func() error { return errors.Join(stream.stop(), workload.CloseLog(ctx, log)) }, nil
}

// openArchive does what openLog does, for the archive.
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

	// As a rebuild, read only the kinds of events that the projection folds, and those that the
	// decoder needs.
	newProjection, err := j.constructorOf(j.Projection)
	if err != nil {
		return nil, nil, err
	}
	kinds := events.Kinds(newProjection().Kinds()...) | events.Kinds(events.BackfillClosed)
	r, err := a.Read(ctx, events.Cursor{Log: id}, kinds)
	if err != nil {
		return nil, nil, err
	}
	next = func(ctx context.Context) ([]*events.Envelope, error) { return r.Next(ctx, bytesPerRead) }
	return next, func() error { r.Close(); return nil }, nil
}

// replayStores has a log, and open stores that have folded all of it.
type replayStores struct {
	log *eventlog.Log
	// hub reads the log until cancel is called. hubErr then gets its error.
	hub    *eventlog.Hub
	cancel context.CancelFunc
	hubErr chan error
	cache  *store.Cache
	// byName has the stores by the names of their projections.
	byName map[string]*store.Store
}

// openStores builds the stores of projections from the archive, and opens the stores and the log.
func (j *replayJob) openStores(ctx context.Context, dir string, names ...string) (s *replayStores, err error) {
	s = &replayStores{cache: store.NewCache(workload.CacheBytes), byName: map[string]*store.Store{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()

	for _, name := range names {
		rebuild := replayJob{Work: workRebuild, Log: j.Log, Projection: name, Archive: true, Threshold: j.Threshold}
		if err := rebuild.rebuild(ctx, dir, new(replayResult)); err != nil {
			return s, err
		}
		newProjection, err := j.constructorOf(name)
		if err != nil {
			return s, err
		}
		s.byName[name], err = store.Open(store.Options{Dir: dir, Projection: newProjection(), Cache: s.cache})
		if err != nil {
			return s, err
		}
	}

	s.log, err = eventlog.Open(ctx, eventlog.Config{Dir: filepath.Join(j.Log, "log"), Existing: true})
	if err != nil {
		return s, err
	}
	s.hub = eventlog.NewHub(s.log, eventlog.HubOptions{})
	s.hubErr = make(chan error, 1)
	ctx, s.cancel = context.WithCancel(ctx)
	hub, ended := s.hub, s.hubErr
	go func() { ended <- hub.Run(ctx) }()
	return s, nil
}

// close closes the stores and the log. It also closes those of a replayStores that could not be
// opened completely.
func (s *replayStores) close(ctx context.Context) (err error) {
	if s.hub != nil {
		s.cancel()
		err = <-s.hubErr
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

// verifyStore compares a store with a second one that it builds from the log, as the service does,
// and returns the processor time of that. It returns an error if the stores differ.
func (j *replayJob) verifyStore(ctx context.Context, dir, name string, s *replayStores) (processor time.Duration, err error) {
	newProjection, err := j.constructorOf(name)
	if err != nil {
		return 0, err
	}

	watch, err := measure.StartStopwatch()
	if err != nil {
		return 0, err
	}
	report, err := verify.Verify(ctx, s.byName[name], verify.Options{
		Dir:       filepath.Join(dir, "shadow"),
		New:       newProjection,
		Subscribe: workload.SubscribeToLog(s.log, s.hub),
		// There is enough space on the disk for a second store.
		FreeDisk:   func() (uint64, error) { return 1 << 60, nil },
		StoreBytes: func() uint64 { return s.byName[name].Status().DiskBytes },
	})
	if err != nil {
		return 0, err
	}
	if !report.Equal {
		return 0, errors.New(report.String())
	}
	_, processor = watch.Read()
	return processor, nil
}

// audit audits all shards once, as the auditor of a service does, and then verifies each store. A
// shard is a part of the users and items.
func (j *replayJob) audit(ctx context.Context, dir string, r *replayResult) (err error) {
	names := []string{"graph", "inbox", "counters"}
	s, err := j.openStores(ctx, dir, names...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()

	watch, err := measure.StartStopwatch()
	if err != nil {
		return err
	}
	for shard := range events.Shard(events.NumShards) {
		if err := s.auditShard(ctx, shard, r); err != nil {
			return err
		}
	}
	elapsed, processor := watch.Read()
	r.Seconds = elapsed.Seconds()
	r.AuditSeconds = processor.Seconds()

	for _, name := range names {
		processor, err := j.verifyStore(ctx, dir, name, s)
		if err != nil {
			return err
		}
		r.VerifySeconds += processor.Seconds()
	}
	return nil
}

// auditShard audits one shard, and returns an error if the auditor finds a fault.
func (s *replayStores) auditShard(ctx context.Context, shard events.Shard, r *replayResult) (err error) {
	const feed = 200 // the limit of the auditor of a service in one round
	a, err := audit.Open(ctx, s.byName["graph"], s.byName["inbox"], s.byName["counters"], audit.Limits{Feed: feed, FeedTurns: audit.FeedTurns})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	err = a.Shard(ctx, shard)
	r.Checks += a.Checks
	if err != nil {
		return err
	}
	findings := a.Findings()
	if len(findings) > 0 {
		return fmt.Errorf("the auditor found %v", findings[0])
	}
	return nil
}
