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
func (c *faultSoak) killAndRestart(p *soakProcess) (string, error) {
	proof, err := p.kill()
	c.pauseUpTo(2 * time.Second)
	return proof, errors.Join(err, p.start())
}

// cutPowerAndRestart cuts the power of a process and of the disk that only this process uses, and
// starts both again.
func (c *faultSoak) cutPowerAndRestart(p *soakProcess, disk *loopDisk) (string, error) {
	if err := p.freeze(c.ctx); err != nil {
		return "", err
	}
	proof, err := disk.cutPower()
	if err != nil {
		return "", err
	}
	killed, err := p.kill()
	return proof + ", " + killed, errors.Join(err, disk.restorePower(), p.start())
}

// slowDisk limits the writes of a process to its disk for a while.
func (c *faultSoak) slowDisk(p *soakProcess, disk *loopDisk) (string, error) {
	end, err := disk.limitWrites(p.pid(), 20_000+c.random.IntN(300_000))
	if err != nil {
		return "", err
	}
	sleepOrDone(c.ctx, c.faultDuration(20*time.Second))
	return end()
}

// injectIntoFsync changes the fsync calls of a process for a while. On a busy machine it takes up
// to a minute longer, until at least one call was changed.
func (c *faultSoak) injectIntoFsync(p *soakProcess, what, mark string, most time.Duration) (string, error) {
	log := p.logPath + ".strace"
	defer os.Remove(log)
	end, err := attachStrace(p.pid(), what, mark, log)
	if err != nil {
		return "", err
	}
	sleepOrDone(c.ctx, time.Second+c.faultDuration(most))
	for began := time.Now(); time.Since(began) < time.Minute; sleepOrDone(c.ctx, 100*time.Millisecond) {
		if text, err := os.ReadFile(log); err == nil && bytes.Contains(text, []byte(mark)) {
			break
		}
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
	for i := c.random.IntN(min(64, len(content))); i < len(content); i += 1 + c.random.IntN(1024) {
		content[i] ^= byte(1 + c.random.IntN(255))
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", err
	}
	if content, err = os.ReadFile(path); err != nil {
		return "", err
	}

	after := sha256.Sum256(content)
	if before == after {
		return "", fmt.Errorf("%s was not changed", path)
	}
	return fmt.Sprintf("sha256 of %s %x… → %x…", filepath.Base(path), before[:3], after[:3]), nil
}

// findFiles returns the non-empty files below a directory whose names match the pattern.
func findFiles(dir, pattern string) (found []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if ok, _ := filepath.Match(pattern, d.Name()); ok {
			if info, err := d.Info(); err == nil && info.Size() > 0 {
				found = append(found, path)
			}
		}
		return nil
	})
	slices.Sort(found)
	return found, err
}

// findLiveFiles returns the matching files of the newest generation of a store, which is the live
// one. Of the manifests it returns only the current one.
func findLiveFiles(dir, pattern string) ([]string, error) {
	generations, err := filepath.Glob(filepath.Join(dir, "0*"))
	if err != nil || len(generations) == 0 {
		return nil, fmt.Errorf("no generation in %s: %w", dir, err)
	}

	slices.Sort(generations)
	live := generations[len(generations)-1]
	if pattern != manifestFiles {
		return findFiles(live, pattern)
	}

	// The file name of the newest marker names the current manifest.
	marker, err := filepath.Glob(filepath.Join(live, "marker.manifest.*."+pattern))
	if err != nil || len(marker) == 0 {
		return nil, fmt.Errorf("no manifest in %s: %w", live, err)
	}
	slices.Sort(marker)
	_, name, _ := strings.Cut(marker[len(marker)-1], "MANIFEST-")
	return []string{filepath.Join(live, "MANIFEST-"+name)}, nil
}

// tableFiles and manifestFiles match the files of a store.
const (
	tableFiles    = "*.sst"
	manifestFiles = "MANIFEST-*"
)

// projectionNames returns the names of all projections, in ascending order.
func projectionNames() (names []string) {
	for _, p := range all.All(all.Settings{}) {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	return names
}

// damageStore damages a file of the live generation of a random store while the process does not
// run. The process must find the damage and rebuild the store by itself. If no read meets the
// damage, a verification must find it.
func (c *faultSoak) damageStore(p *soakProcess, data string, api *command.Client, pattern string) (string, error) {
	if err := p.stopGracefully(); err != nil {
		return "", err
	}

	var name string
	var files []string
	names := projectionNames()
	// A store that was just created may have no tables yet.
	for _, i := range c.random.Perm(len(names)) {
		var err error
		name = names[i]
		if files, err = findLiveFiles(filepath.Join(data, "stores", name), pattern); err == nil && len(files) > 0 {
			break
		}
	}
	if len(files) == 0 {
		return "", errors.Join(fmt.Errorf("no store has %s", pattern), p.start())
	}

	proof, err := c.corruptFile(files[c.random.IntN(len(files))])
	if err != nil {
		return "", err
	}

	from := p.logSize()
	if err := p.start(); err != nil {
		return "", err
	}

	rebuilt := func(ctx context.Context) error {
		if len(p.logLines(from, "the projection is rebuilt")) > 0 {
			return nil
		}
		out, err := runTool(ctx, p.bin, "replay", "verify", name, "--server", api.URL)
		return fmt.Errorf("the damage was not found: %s, %w", out, err)
	}
	if err := eventually(c.ctx, rebuilt); err != nil {
		return "", err
	}
	return name + ": " + proof + ", rebuilt automatically", nil
}
