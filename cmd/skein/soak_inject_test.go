//go:build faults

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/projections/all"
)

// killAndRestart kills a process and starts it again after at most two seconds.
func (c *faultSoak) killAndRestart(p *soakProcess) (proof string, err error) {
	proof, err = p.kill()
	c.pauseUpTo(2 * time.Second)
	return proof, errors.Join(err, p.start())
}

// cutPowerAndRestart cuts the power of a process and of the disk that only this process uses, and
// starts both again.
func (c *faultSoak) cutPowerAndRestart(p *soakProcess, disk *loopDisk) (proof string, err error) {
	// The process must not see the cut, because no process without power could.
	if err := p.freeze(c.ctx); err != nil {
		return "", err
	}
	cutProof, err := disk.cutPower()
	if err != nil {
		return "", err
	}
	killProof, err := p.kill()

	// The disk can be mounted again only after the process has ended, which had files open on it.
	err = errors.Join(err, disk.restorePower())
	err = errors.Join(err, p.start())
	return cutProof + ", " + killProof, err
}

// slowDisk limits the writes of a process to its disk for a while, to at least 20 kB and at most
// 320 kB per second.
func (c *faultSoak) slowDisk(p *soakProcess, disk *loopDisk) (proof string, err error) {
	end, err := disk.limitWrites(p.pid(), 20_000+c.random.IntN(300_000))
	if err != nil {
		return "", err
	}
	sleepOrDone(c.ctx, c.faultDuration(20*time.Second))
	return end()
}

// injectIntoFsync changes the fsync calls of a process for a random time that limit bounds, as
// [faultSoak.faultDuration] says. injection is the option inject of strace, and mark is what strace
// writes to its log beside each call that it has changed. On a busy machine the fault lasts up to a
// minute longer, until at least one call was changed.
func (c *faultSoak) injectIntoFsync(p *soakProcess, injection, mark string, limit time.Duration) (proof string, err error) {
	straceLog := p.logPath + ".strace"
	defer os.Remove(straceLog)
	end, err := attachStrace(p.pid(), injection, mark, straceLog)
	if err != nil {
		return "", err
	}

	sleepOrDone(c.ctx, time.Second+c.faultDuration(limit))
	for began := time.Now(); c.ctx.Err() == nil && time.Since(began) < time.Minute; {
		text, err := os.ReadFile(straceLog)
		if err == nil && bytes.Contains(text, []byte(mark)) {
			break
		}
		sleepOrDone(c.ctx, 100*time.Millisecond)
	}
	return end()
}

// corruptFile changes bytes everywhere in a file. The proof is the old and the new hash.
func (c *faultSoak) corruptFile(path string) (proof string, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	before := sha256.Sum256(content)

	// Change one of the first 64 bytes, so that a file of any size is changed, and from there on at
	// least one byte in each KiB. The exclusive or with a number other than 0 changes every byte.
	for i := c.random.IntN(min(64, len(content))); i < len(content); i += 1 + c.random.IntN(1024) {
		content[i] ^= byte(1 + c.random.IntN(255))
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", err
	}

	// The proof must be about what is in the file.
	written, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	after := sha256.Sum256(written)
	if before == after {
		return "", fmt.Errorf("sha256 of %s: got %x as before, want another one", path, after)
	}
	return fmt.Sprintf("sha256 of %s %x… → %x…", filepath.Base(path), before[:3], after[:3]), nil
}

// findFiles returns the non-empty files below a directory whose names match the pattern.
func findFiles(dir, pattern string) (found []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		matches, err := filepath.Match(pattern, entry.Name())
		if err != nil || !matches {
			return err
		}

		// A running process may have removed the file meanwhile. Then leave it out.
		info, err := entry.Info()
		if err == nil && info.Size() > 0 {
			found = append(found, path)
		}
		return nil
	})
	slices.Sort(found)
	return found, err
}

// tableFiles and manifestFiles are patterns for the names of the files of a store.
const (
	tableFiles    = "*.sst"
	manifestFiles = "MANIFEST-*"
)

// findLiveFiles returns the matching files of the newest generation of a store, which is the live
// one. Of the manifests it returns only the current one.
func findLiveFiles(dir, pattern string) ([]string, error) {
	// The names of generations are numbers with leading zeros, so the last name is the newest.
	generations, err := filepath.Glob(filepath.Join(dir, "0*"))
	if err != nil {
		return nil, err
	}
	if len(generations) == 0 {
		return nil, fmt.Errorf("generations in %s: got none, want at least 1", dir)
	}
	slices.Sort(generations)
	live := generations[len(generations)-1]
	if pattern != manifestFiles {
		return findFiles(live, pattern)
	}

	// The file name of the newest marker names the current manifest.
	markers, err := filepath.Glob(filepath.Join(live, "marker.manifest.*."+pattern))
	if err != nil {
		return nil, err
	}
	if len(markers) == 0 {
		return nil, fmt.Errorf("markers of manifests in %s: got none, want at least 1", live)
	}
	slices.Sort(markers)
	_, number, _ := strings.Cut(markers[len(markers)-1], "MANIFEST-")
	return []string{filepath.Join(live, "MANIFEST-"+number)}, nil
}

// projectionNames returns the names of all projections, in ascending order.
func projectionNames() (names []string) {
	for _, p := range all.All(all.Settings{}) {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	return names
}

// findStoreFiles returns the files of the live generation of the first store, in a random order, that
// has files which may be damaged. A store that was just created may have no tables yet. If no store
// has such files, findStoreFiles returns none, and the errors of the search.
func (c *faultSoak) findStoreFiles(dataDir, pattern string) (name string, files []string, err error) {
	names := projectionNames()
	for _, i := range c.random.Perm(len(names)) {
		files, findErr := findLiveFiles(filepath.Join(dataDir, "stores", names[i]), pattern)
		err = errors.Join(err, findErr)
		// A very first manifest that is damaged everywhere looks like one that a power cut has torn.
		// Then the store is empty, and folds the log again without reporting anything.
		files = slices.DeleteFunc(files, func(path string) bool { return filepath.Base(path) == "MANIFEST-000001" })
		if len(files) > 0 {
			return names[i], files, nil
		}
	}
	return "", nil, err
}

// damageStore damages a file of the live generation of a random store while the process does not
// run. The process must find the damage and rebuild the store by itself. If no read meets the
// damage, a verification must find it.
func (c *faultSoak) damageStore(p *soakProcess, dataDir string, api *command.Client, pattern string) (proof string, err error) {
	if err := p.stopGracefully(); err != nil {
		return "", err
	}

	// A store whose first process still runs has only its very first manifest, which must not be
	// damaged. The next start writes another one.
	name, files, err := c.findStoreFiles(dataDir, pattern)
	if len(files) == 0 {
		if err := p.start(); err != nil {
			return "", err
		}
		if err := p.stopGracefully(); err != nil {
			return "", err
		}
		name, files, err = c.findStoreFiles(dataDir, pattern)
	}
	if len(files) == 0 {
		return "", errors.Join(fmt.Errorf("files %s of the stores: got none, want at least 1", pattern), err, p.start())
	}

	corruption, err := c.corruptFile(files[c.random.IntN(len(files))])
	if err != nil {
		return "", err
	}

	logSize := p.logSize()
	if err := p.start(); err != nil {
		return "", err
	}
	checkRebuilt := func(ctx context.Context) error {
		const want = "the projection is rebuilt"
		if len(p.logLines(logSize, want)) > 0 {
			return nil
		}

		// Let a verification read every row of the store, also those that no client reads.
		_, err := runTool(ctx, p.bin, "replay", "verify", name, "--server", api.URL)
		if err == nil {
			err = fmt.Errorf("the verification of %s finds no damage", name)
		}
		return fmt.Errorf("log of %s: got no line with %q, want one: %w", p.name, want, err)
	}
	if err := eventually(c.ctx, checkRebuilt); err != nil {
		return "", err
	}
	return name + ": " + corruption + ", rebuilt automatically", nil
}
