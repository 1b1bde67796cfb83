package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
)

// The names of the two programs of a comparison, which are also the names of their series.
const baseSide, headSide = "base", "head"

// comparedIdle is how long an idle service is left alone before its memory is read. It is longer
// than the two minutes after which Go collects garbage even if nothing is allocated.
const comparedIdle = 130 * time.Second

// comparedSide is one of the two programs, with the service that it runs.
type comparedSide struct {
	name string
	// bench has the settings of the run and starts the program of this side.
	bench *measure.Bench
	// dir holds the data of the service.
	dir   string
	skein *programs.Skein
	// written and pinned are how many events and how many pins were published, so that the next
	// ones are new.
	written, pinned int
}

// comparison is one run that compares two programs. It uses only `skein serve` and the API, so it
// can compare commits whose code has nothing in common.
type comparison struct {
	*measure.Bench
	world *loadWorld
	sides []*comparedSide
}

// MeasurePrograms measures rows of two programs in turn, in every other round in the opposite
// order. Both services have the same data.
func MeasurePrograms(ctx context.Context, b *measure.Bench) (err error) {
	c, err := newComparison(ctx, b)
	if err != nil {
		return err
	}

	// Idle services are measured first, while their data directories are small: each needs a copy.
	for _, s := range c.sides {
		if err := s.makeWorld(ctx, c.world); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := c.compareIdleMemory(ctx); err != nil {
		return err
	}

	if err := c.compareServices(ctx); err != nil {
		return err
	}
	// These rows start an empty service for every measurement.
	return c.compareIngest(ctx)
}

// newComparison builds the programs that are not built yet, and makes the data of the services.
func newComparison(ctx context.Context, b *measure.Bench) (*comparison, error) {
	head, err := programs.BuildSkein(ctx, b)
	if err != nil {
		return nil, err
	}
	base := cmp.Or(b.Opts.Base.Path, head)

	b.Logf("making a world of %d users and %d follows", b.Opts.Users, b.Opts.Edges)
	c := &comparison{Bench: b, world: newLoadWorld(b.Opts.Users, b.Opts.Edges, time.Now())}
	for _, program := range []struct{ name, path string }{{baseSide, base}, {headSide, head}} {
		dir, err := os.MkdirTemp(b.Dir, program.name+"-")
		if err != nil {
			return nil, err
		}
		own := *b
		own.Program = program.path
		c.sides = append(c.sides, &comparedSide{name: program.name, bench: &own, dir: dir})
	}
	return c, nil
}

// startService starts the service of this side on a data directory. It has no auditor, because the
// reads of an auditor would be noise.
func (s *comparedSide) startService(ctx context.Context, dir string) (*programs.Skein, error) {
	return programs.StartSkeinWithData(ctx, s.bench, filepath.Join(dir, "data"), filepath.Join(dir, "port"), "--audit-share", "0")
}

// makeWorld loads the data into a service of this side, and stops the service.
func (s *comparedSide) makeWorld(ctx context.Context, w *loadWorld) error {
	s.bench.Logf("loading the world into %s", s.name)
	skein, err := s.startService(ctx, s.dir)
	if err != nil {
		return err
	}
	err = w.load(ctx, skein)
	if err == nil {
		err = s.waitUntilCompacted(ctx, skein)
	}
	return errors.Join(err, skein.Stop())
}

// waitUntilCompacted waits until the service has flushed and compacted what it was given. A smoke
// test does not wait.
func (s *comparedSide) waitUntilCompacted(ctx context.Context, skein *programs.Skein) error {
	if s.bench.Opts.Quick {
		return nil
	}
	return skein.WaitUntilCompacted(ctx)
}

// compareIdleMemory starts as many services as there are rounds, lets all of them idle together,
// and reads their memory.
func (c *comparison) compareIdleMemory(ctx context.Context) (err error) {
	row := c.AddRow("compare-idle-memory", "idle memory, without an auditor", "bytes", "")
	idle := comparedIdle
	if c.Opts.Quick {
		idle /= 1000
	}

	type idleService struct {
		side  *comparedSide
		skein *programs.Skein
	}
	var services []idleService
	defer func() {
		for _, s := range services {
			err = errors.Join(err, s.skein.Stop())
		}
	}()

	copies, err := os.MkdirTemp(c.Dir, "idle-")
	if err != nil {
		return err
	}
	for run := range c.Opts.Runs {
		for _, s := range measure.RunOrder(run, c.sides) {
			dir := filepath.Join(copies, fmt.Sprintf("%s-%d", s.name, run))
			if err := os.CopyFS(dir, os.DirFS(s.dir)); err != nil {
				return err
			}
			skein, err := s.startService(ctx, dir)
			if err != nil {
				return err
			}
			services = append(services, idleService{s, skein})
		}
	}

	c.Logf("%d services idle for %v", len(services), idle)
	if err := services[0].skein.StayIdle(ctx, idle); err != nil {
		return err
	}
	for _, s := range services {
		memory, err := s.skein.ResidentBytes(ctx)
		if err != nil {
			return err
		}
		row.SeriesOf(s.side.name).Add(measure.Measurement{Value: memory})
		c.Logf("  %-22s %s %s bytes", row.ID, s.side.name, measure.FormatFigure(memory))
	}
	row.Compare(headSide, baseSide, 0, true)
	return nil
}

// compareServices measures the rows that need a service with data.
func (c *comparison) compareServices(ctx context.Context) (err error) {
	defer func() {
		for _, s := range c.sides {
			if s.skein != nil {
				err = errors.Join(err, s.skein.Stop())
			}
		}
	}()
	for _, s := range c.sides {
		if s.skein, err = s.startService(ctx, s.dir); err != nil {
			return err
		}
	}

	// Rebuilds leave both services with the tables of a build. Without them, the reads would
	// compare which tables each service happened to compact while the world was loaded.
	if err := c.compareRebuilds(ctx); err != nil {
		return err
	}
	for _, s := range c.sides {
		if err := s.waitUntilCompacted(ctx, s.skein); err != nil {
			return err
		}
	}

	// Reads come before what changes the stores.
	if err := c.compareReads(ctx); err != nil {
		return err
	}
	if err := c.compareFanOut(ctx); err != nil {
		return err
	}
	return c.comparePublishing(ctx)
}

// compareRow adds a row, measures both sides in turn, and compares them.
func (c *comparison) compareRow(
	ctx context.Context, id, title, unit string, lessIsBetter bool, measureSide func(ctx context.Context, s *comparedSide) (measure.Measurement, error),
) error {
	row := c.AddRow("compare-"+id, title, unit, "")
	var contenders []measure.Contender
	for _, s := range c.sides {
		contenders = append(contenders, measure.Contender{Name: s.name, Measure: func(ctx context.Context) (measure.Measurement, error) {
			return measureSide(ctx, s)
		}})
	}
	if err := c.MeasureInTurn(ctx, row, contenders...); err != nil {
		return err
	}
	row.Compare(headSide, baseSide, 0, lessIsBetter)
	return nil
}
