package live

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/store"
)

// A generation can be prepared beside a running service, by a process with another version of the program or with other settings. When the
// service is started with that version, it finds that it cannot continue the live generation, and continues the prepared one:
//
//	NAME/prepared/NAME/000001 ── rename ──► NAME/000008 ── GENERATIONS names it live, and 000007 as the previous one
//
// When the version before is started again, it continues the previous generation in the same way.

// Preparation is the place of a generation that is prepared.
type Preparation struct {
	// Options are those of the store, with the directory of all stores. Generation is not used.
	Options store.Options
	// Log and Epoch are those of the log that is read.
	Log   events.LogID
	Epoch uint32
}

// StoreOptions returns the options with which the prepared generation is opened and folded.
func (p *Preparation) StoreOptions() store.Options {
	o := p.Options
	o.Dir = o.FS.PathJoin(o.Dir, o.Projection.Name(), disk.PreparedDir)
	o.Generation = 1
	return o
}

// Dir returns the directory of the files of the prepared generation.
func (p *Preparation) Dir() string { return store.GenerationDir(p.StoreOptions(), 1) }

// fingerprint returns the fingerprint of the prepared generation.
func (p *Preparation) fingerprint() string {
	return projections.FingerprintOfPartitions(p.Options.Projection, p.Options.Partitions).String()
}

// IsComplete reports whether the generation was prepared completely, by the same fold from the same epoch of the same log. It only lacks
// what the log got since then.
func (p *Preparation) IsComplete() (bool, error) {
	prepared, found, err := disk.ReadPrepared(p.Options.FS, p.Dir())
	return found && prepared.Fingerprint == p.fingerprint() && isOf(prepared, p.Log, p.Epoch), err
}

// Complete records that the generation was prepared completely. Its files must be on disk.
func (p *Preparation) Complete() error {
	fs, o := p.Options.FS, p.StoreOptions()
	// The new directories must be durable before the file that says that they are complete.
	name := p.Options.Projection.Name()
	for _, dir := range []string{fs.PathJoin(o.Dir, name), o.Dir, fs.PathJoin(p.Options.Dir, name), p.Options.Dir} {
		if err := disk.SyncDir(fs, dir); err != nil {
			return err
		}
	}
	return disk.WritePrepared(fs, p.Dir(), disk.Prepared{
		Fingerprint: p.fingerprint(), Log: hex.EncodeToString(p.Log[:]), Epoch: p.Epoch,
	})
}

// Remove removes what was prepared.
func (p *Preparation) Remove() error {
	return p.Options.FS.RemoveAll(p.StoreOptions().Dir)
}

// isOf reports whether a generation was prepared from an epoch of a log.
func isOf(p disk.Prepared, log events.LogID, epoch uint32) bool {
	return p.Log == hex.EncodeToString(log[:]) && p.Epoch == epoch
}

// replaceOutdated looks for a generation that this program can continue, in place of the live one, which it cannot: one that was prepared,
// or the previous one after the program was rolled back. It returns the generation that serves then, which is the live one if there is no
// other.
func (l *Live) replaceOutdated(outdated *serving) (*serving, error) {
	g := *l.generations.Load()
	var candidates []uint32
	prepared, found, err := l.installPrepared(g)
	if err != nil {
		l.logger().Error("the prepared generation cannot be used", "error", err)
	}
	if found {
		candidates = append(candidates, prepared)
	}
	if g.Previous != 0 {
		if _, err := l.opts.FS.Stat(store.GenerationDir(l.locationOptions(), g.Previous)); err == nil {
			candidates = append(candidates, g.Previous)
		}
	}

	for _, number := range candidates {
		s, err := l.openServing(number)
		if err != nil {
			return nil, err
		}
		if s.err == nil {
			return l.takePlace(outdated, s)
		}
		if s.store != nil {
			if err := s.store.Close(); err != nil {
				return nil, err
			}
		}
	}
	return outdated, nil
}

// takePlace names a generation live, and the outdated one the previous one.
func (l *Live) takePlace(outdated, s *serving) (*serving, error) {
	if outdated.store != nil {
		if err := outdated.store.Close(); err != nil {
			return nil, err
		}
	}
	after := *l.generations.Load()
	after.Live, after.Previous, after.Partitions = s.number, outdated.number, s.store.Fingerprint().Partitions
	if err := l.writeGenerations(after); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	l.logger().Info("a generation that this program can continue takes the place of the live one", "generation", s.number,
		"previous", outdated.number)
	l.removeStale(after, false)
	return s, disk.RemovePrepared(l.opts.FS, s.store.Dir())
}

// isUsable reports whether a directory has a complete generation that was prepared for this program, from this log, for the partitions of the
// live generation.
func (l *Live) isUsable(dir string) bool {
	p, found, err := disk.ReadPrepared(l.opts.FS, dir)
	if err != nil {
		l.logger().Warn("what was prepared cannot be read", "directory", dir, "error", err)
		return false
	}
	fingerprint := l.fingerprint
	fingerprint.Partitions = l.generations.Load().Partitions
	return found && p.Fingerprint == fingerprint.String() && isOf(p, l.opts.Log, l.opts.Epoch)
}

// Replacement describes the generation that the next start continues in place of an outdated one. It is empty if there is none, so that the
// projection must be rebuilt.
func (l *Live) Replacement() string {
	if s := l.serving.Load(); s.err == nil || s.state != store.Outdated {
		return ""
	}
	if l.isUsable(store.GenerationDir(l.preparedOptions(), 1)) {
		return "a prepared generation"
	}
	g := l.generations.Load()
	if g.Previous == 0 {
		return ""
	}
	o := l.storeOptions(g.Previous)
	o.ReadOnly, o.Listener = true, store.Listener{}
	previous, err := store.Open(o)
	if err != nil {
		return ""
	}
	outdated := previous.Outdated()
	if err := previous.Close(); err != nil || outdated != "" {
		return ""
	}
	return fmt.Sprintf("the previous generation, %d", g.Previous)
}

// installPrepared gives a prepared generation its number, if there is one that this program can continue, and returns the number. The
// generation is not named live yet. If a crash has prevented that after an earlier call, installPrepared finds it under its number.
func (l *Live) installPrepared(g disk.Generations) (number uint32, found bool, err error) {
	fs := l.opts.FS
	numbers := disk.ListGenerations(fs, l.dir)
	for _, n := range numbers {
		if n != g.Live && n != g.Previous && l.isUsable(store.GenerationDir(l.locationOptions(), n)) {
			return n, true, nil
		}
	}

	from := store.GenerationDir(l.preparedOptions(), 1)
	if !l.isUsable(from) {
		return 0, false, nil
	}
	// Without a file of generations, the highest number is live, and that is to be the outdated one until the prepared one was opened.
	if len(numbers) > 0 {
		if err := l.writeGenerations(g); err != nil {
			return 0, false, err
		}
	}
	number = 1 + max(g.Previous, slices.Max(append(numbers, 0)))
	to := store.GenerationDir(l.locationOptions(), number)
	if err := fs.Rename(from, to); err != nil {
		return 0, false, fmt.Errorf("%s: %w", from, err)
	}
	return number, true, errors.Join(disk.SyncDir(fs, l.dir), fs.RemoveAll(l.preparedOptions().Dir))
}

// preparedOptions has the directory of what is prepared.
func (l *Live) preparedOptions() store.Options {
	o := l.locationOptions()
	o.Dir = o.FS.PathJoin(l.dir, disk.PreparedDir)
	return o
}

// removePrepared removes what was prepared for a later start.
func (l *Live) removePrepared() error { return l.opts.FS.RemoveAll(l.preparedOptions().Dir) }

// HeldOnDisk returns the partitions that the live generation of a projection holds, by the file of generations in the directory of all
// stores; nil means all. It may be called while a service has the stores open.
func HeldOnDisk(fs store.FS, dir, projection string) (*events.Partitions, error) {
	g, _, err := disk.ReadGenerations(fs, fs.PathJoin(dir, projection))
	if err != nil {
		return nil, err
	}
	return projections.ParseHeld(g.Partitions)
}
