package live

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/store"
)

// While a service is running, another process can prepare a generation for it: a process with a
// newer version of the program, or with other settings. The running service does not use the
// prepared generation. A program can continue a generation if both have the same fingerprint: the
// same version of the fold, the same settings, the same partitions. If a service starts and cannot
// continue its live generation, but can continue the prepared one, it makes that one live:
//
//	NAME/prepared/NAME/000001 ── rename ──► NAME/000008 ── GENERATIONS names it live, and 000007 the previous one
//
// NAME is there twice because NAME/prepared is a directory of stores of its own. If an operator
// rolls back the program later, the old program cannot continue generation 8, but it can continue
// the previous one, 7. So the next start makes 7 live and 8 the previous one.

// Preparation is a generation that is being prepared or that was prepared. It knows where the files
// are and whether they are complete. Package rebuild folds the events into the generation.
type Preparation struct {
	// Options are the options of the projection's store in the service. FS must be set. Dir is the
	// directory of the stores of all projections. The service uses the prepared generation only if
	// Partitions are those of its live generation; see [PartitionsOnDisk]. Generation is ignored.
	Options store.Options
	// Log and Epoch identify the log from which the generation is built. A log begins a new epoch
	// when a user is erased from it or when it is restored.
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

// Key identifies what the generation is built from: the fold with its settings and partitions, and
// the epoch of the log.
func (p *Preparation) Key() string {
	return fmt.Sprintf("%s %x %d", p.fingerprint(), p.Log, p.Epoch)
}

// IsComplete reports whether Complete was called for a generation with this fingerprint, from this
// epoch of this log. If so, the generation lacks only envelopes that the log has received since.
func (p *Preparation) IsComplete() (bool, error) {
	prepared, found, err := disk.ReadPrepared(p.Options.FS, p.Dir())
	return found && prepared.Fingerprint == p.fingerprint() && isFrom(prepared, p.Log, p.Epoch), err
}

// Begin writes the file that says from which epoch of which log the generation is built. It removes
// what was prepared from another one. It must be called before anything else is written.
func (p *Preparation) Begin() error {
	fs := p.Options.FS
	dir := p.StoreOptions().Dir
	begun, found, err := disk.ReadPrepared(fs, dir)
	if found && err == nil && isFrom(begun, p.Log, p.Epoch) {
		return nil
	}
	if err := p.Remove(); err != nil {
		return err
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return disk.WritePrepared(fs, dir, p.origin())
}

// origin returns what the generation is built from.
func (p *Preparation) origin() disk.Prepared {
	return disk.Prepared{Fingerprint: p.fingerprint(), Log: hex.EncodeToString(p.Log[:]), Epoch: p.Epoch}
}

// Complete writes the file that says that the generation is complete. The caller must have closed
// the store, which syncs its files.
func (p *Preparation) Complete() error {
	fs := p.Options.FS
	o := p.StoreOptions()

	// The entries of the new directories must be durable before the file that says that the
	// generation is complete.
	name := p.Options.Projection.Name()
	for _, dir := range []string{fs.PathJoin(o.Dir, name), o.Dir, fs.PathJoin(p.Options.Dir, name), p.Options.Dir} {
		if err := disk.SyncDir(fs, dir); err != nil {
			return err
		}
	}
	return disk.WritePrepared(fs, p.Dir(), p.origin())
}

// Remove removes the files of the prepared generation, complete or not.
func (p *Preparation) Remove() error {
	return p.Options.FS.RemoveAll(p.StoreOptions().Dir)
}

// isFrom reports whether a generation was prepared from this log in this epoch.
func isFrom(p disk.Prepared, log events.LogID, epoch uint32) bool {
	return p.Log == hex.EncodeToString(log[:]) && p.Epoch == epoch
}

// replaceOutdated makes a generation live that this program can continue, in place of the outdated
// one: the prepared generation, or else the previous one, if it is of the present epoch of the log.
// It returns the generation that is live afterwards, which is still the outdated one if this
// program can continue neither of them. After an error the outdated store may be open or closed.
func (l *Live) replaceOutdated(outdated *serving) (*serving, error) {
	g := *l.generations.Load()
	var candidates []uint32
	prepared, found, err := l.installPrepared(g)
	if err != nil {
		l.logger().Error("the prepared generation cannot be used", "error", err)
	} else if found {
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
		if s.err == nil && (number == prepared || l.mayContinueFrom(s.store.Cursor())) {
			return l.swapWithOutdated(outdated, s)
		}
		if err := s.closeStore(); err != nil {
			return nil, err
		}
		if number == prepared {
			// Every start would find this generation again, and would prefer it to one that is
			// prepared later.
			l.logger().Error("the prepared generation cannot be opened, and is removed", "generation", number, "error", s.err)
			if err := l.opts.FS.RemoveAll(store.GenerationDir(l.locationOptions(), number)); err != nil {
				return nil, err
			}
		}
	}
	return outdated, nil
}

// swapWithOutdated closes the outdated generation, and then makes s the live generation and the
// outdated one the previous one, in the file of generations. It returns s.
func (l *Live) swapWithOutdated(outdated, s *serving) (*serving, error) {
	if err := outdated.closeStore(); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}

	after := *l.generations.Load()
	after.Live = s.number
	after.Previous = outdated.number
	after.Partitions = s.store.Fingerprint().Partitions
	if err := l.writeGenerations(after); err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	l.logger().Info("the live generation is outdated, and another one is live instead", "generation", s.number, "previous", outdated.number)
	l.removeStale(after, false)
	return s, nil // Open removes the mark of the prepared generation
}

// mayContinueFrom reports whether a previous generation may continue from a cursor. It may not if
// the log has begun a new epoch since: the epoch may have begun with the erasure of a user. Then
// the log no longer has the deletion of that user's id, and the generation would keep the user's
// rows.
func (l *Live) mayContinueFrom(c events.Cursor) bool {
	isLogKnown := l.opts.Log != events.LogID{}
	return !isLogKnown || c.Seq == 0 || c.Epoch >= l.opts.Epoch
}

// isUsable reports whether a directory has a complete prepared generation that this program can
// continue: one with the fingerprint of this program for the partitions of the live generation,
// built from the present epoch of this log. It only logs errors.
func (l *Live) isUsable(dir string) bool {
	p, found, err := disk.ReadPrepared(l.opts.FS, dir)
	if err != nil {
		l.logger().Warn("what was prepared cannot be read", "directory", dir, "error", err)
		return false
	}
	fingerprint := l.fingerprint
	fingerprint.Partitions = l.generations.Load().Partitions
	return found && p.Fingerprint == fingerprint.String() && isFrom(p, l.opts.Log, l.opts.Epoch)
}

// mayBeInstalled reports whether a directory has a prepared generation of the present epoch of this
// log, which a program with another fold may make live at its start: a crash has kept that program
// from naming the generation in the file of generations. Any program may be started next, so the
// fingerprint does not matter.
func (l *Live) mayBeInstalled(dir string) bool {
	p, found, err := disk.ReadPrepared(l.opts.FS, dir)
	if err != nil {
		return true // it may be of a later version of the program
	}
	isLogKnown := l.opts.Log != events.LogID{}
	return found && (!isLogKnown || isFrom(p, l.opts.Log, l.opts.Epoch))
}

// Replacement describes the generation that an Open without ReadOnly would make live in place of
// the outdated one. It is empty if there is none, or if the live generation is not outdated.
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

	// Open the previous generation for reading, only to compare its fingerprint. No file changes.
	o := l.storeOptions(g.Previous)
	o.ReadOnly = true
	o.Listener = store.Listener{}
	previous, err := store.Open(o)
	if err != nil {
		return ""
	}
	mayContinue := previous.Outdated() == "" && l.mayContinueFrom(previous.Cursor())
	if err := previous.Close(); err != nil || !mayContinue {
		return ""
	}
	return fmt.Sprintf("the previous generation, %d", g.Previous)
}

// installPrepared moves the prepared generation, if it is usable, to the directory of the next free
// number, and returns that number. found is false if there is no usable one. installPrepared does
// not write the number to the file of generations. If a crash comes between the move and that
// write, the next call finds the generation under its number.
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

	// Without a file of generations, the generation with the highest number is live. After the move
	// that would be the prepared one. So write first which one is live.
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

// preparedOptions returns options that locate the prepared generation, whose number is 1.
func (l *Live) preparedOptions() store.Options {
	o := l.locationOptions()
	o.Dir = o.FS.PathJoin(l.dir, disk.PreparedDir)
	return o
}

// RemoveOutdatedPreparations removes what was prepared, completely or not, from another log or
// another epoch than the present one: no program uses it any more, and it may have rows of a user
// who was erased when the present epoch began. dir is the directory of the stores of all
// projections. Projections that this program does not have are included.
func RemoveOutdatedPreparations(fs store.FS, dir string, log events.LogID, epoch uint32) error {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		prepared := fs.PathJoin(dir, fs.PathBase(name), disk.PreparedDir)
		if _, statErr := fs.Stat(prepared); statErr != nil {
			continue // nothing was prepared, or this is a file
		}
		// The second file is that of a complete generation.
		complete := fs.PathJoin(prepared, fs.PathBase(name), "000001")
		if mayBeFrom(fs, prepared, log, epoch) || mayBeFrom(fs, complete, log, epoch) {
			continue
		}
		err = errors.Join(err, fs.RemoveAll(prepared))
	}
	return err
}

// mayBeFrom reports whether the file in dir says that a generation is prepared from this epoch of
// this log, or cannot be read: it may be of a later version of the program.
func mayBeFrom(fs store.FS, dir string, log events.LogID, epoch uint32) bool {
	p, found, err := disk.ReadPrepared(fs, dir)
	return err != nil || found && isFrom(p, log, epoch)
}

// removePrepared removes the prepared generation.
func (l *Live) removePrepared() error { return l.opts.FS.RemoveAll(l.preparedOptions().Dir) }

// PartitionsOnDisk returns the partitions that the live generation of a projection holds; nil means
// all. It reads the file of generations below dir, the directory of all stores, and may be called
// while a service has the stores open.
func PartitionsOnDisk(fs store.FS, dir, projection string) (*events.Partitions, error) {
	g, _, err := disk.ReadGenerations(fs, fs.PathJoin(dir, projection))
	if err != nil {
		return nil, err
	}
	return projections.ParseHeld(g.Partitions)
}
