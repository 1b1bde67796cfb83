//go:build faults

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/replaycmd"
)

// soakEmbedded is a soak of one process, whose embedded log and stores are on a small disk.
type soakEmbedded struct {
	*faultSoak

	// dir is a directory on the disk of the machine, for logs, snapshots and saved files.
	dir string
	// dataDir is the data directory of the process, which is on the small disk.
	dataDir string
	disk    *loopDisk

	process *soakProcess
	api     *command.Client
	// holeCount counts the messages of the log that were damaged so far.
	holeCount int
}

// TestSoakFaultsEmbedded injects faults into one process with an embedded log, and demands that no
// answer is wrong and nothing is lost.
func TestSoakFaultsEmbedded(t *testing.T) {
	dir := t.TempDir()
	e := &soakEmbedded{faultSoak: newFaultSoak(t), dir: dir}
	e.disk = mountLoopDisk(t, filepath.Join(dir, "disk"), 2048)
	e.dataDir = filepath.Join(e.disk.dir, "data")

	// The process keeps its port when it is started again.
	ports, err := findFreePorts(24000, 1)
	if err != nil {
		t.Fatal(err)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", ports[0])

	// Archive, trim the log and take snapshots so often that all of these are under way during
	// faults.
	e.process = &soakProcess{
		name: "skein", bin: buildProgram(t, dir, "skein", "."), logPath: filepath.Join(dir, "skein.log"), onExit: e.recordExit,
		args: []string{
			"serve", "--data", e.dataDir, "--listen", listen, "--archive-every", "10s", "--log-retention", "1m",
			"--snapshots", filepath.Join(dir, "snapshots"), "--snapshot-every", "2m", "--snapshot-keep", "3",
		},
	}
	e.processes = []*soakProcess{e.process}
	if err := e.process.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = e.process.kill() })
	e.api = (&command.ClientFlags{Server: listen, Timeout: readTime}).Client()

	e.kinds = e.faultKinds()
	e.startTraffic([]*command.Client{e.api}, false)

	// Some faults need a snapshot, which the service takes only once its projections are ready.
	waitUntil(e.ctx, t, func(ctx context.Context) error {
		_, err := e.takeSnapshot(ctx)
		return err
	})
	e.finish(e.injectFaults(), e.verifyStores)
}

// faultKinds returns the kinds of faults of the process, its disk, its stores and its log.
func (e *soakEmbedded) faultKinds() []faultKind {
	return []faultKind{
		{name: "kill -9", inject: func() (string, error) { return e.killAndRestart(e.process) }},
		{name: "stop and continue", inject: func() (string, error) { return e.process.pause(e.ctx, e.faultDuration(20*time.Second)) }},
		{name: "power cut", inject: func() (string, error) { return e.cutPowerAndRestart(e.process, e.disk) }},
		{name: "disk full", inject: e.fillDisk},
		{name: "disk full, killed and started there", inject: e.fillDiskAndKill},
		{name: "disk slow", inject: func() (string, error) { return e.slowDisk(e.process, e.disk) }},
		{name: "fsync slow", inject: e.slowFsync},
		{name: "fsync fails, then a power cut", inject: e.failFsync, mayExit: true},
		{name: "table of a store damaged", inject: func() (string, error) { return e.damageStore(e.process, e.dataDir, e.api, tableFiles) }},
		{name: "manifest of a store damaged", inject: func() (string, error) { return e.damageStore(e.process, e.dataDir, e.api, manifestFiles) }},
		{name: "stores lost, restored from a snapshot", inject: e.loseStores},
		{name: "message damaged before it is archived", inject: e.damageLogTail},
		{name: "log damaged, restored from the archive", inject: e.damageLog, mayExit: true},
	}
}

// diskFullReason is the reason of the API with which calls are refused because the disk is full.
const diskFullReason = "DISK_FULL"

// waitForRefusal waits until more calls of Publish than before were refused because the disk is
// full.
func (e *soakEmbedded) waitForRefusal(before int) error {
	return eventually(e.ctx, func(context.Context) error {
		if e.traffic.errorCount(diskFullReason) == before {
			return fmt.Errorf("calls refused with %s: got %d, want more", diskFullReason, before)
		}
		return nil
	})
}

// fillDisk fills the disk to the last byte until a call of Publish is refused.
func (e *soakEmbedded) fillDisk() (proof string, err error) {
	before := e.traffic.errorCount(diskFullReason)

	// Heal the fault also if it could not be proven.
	defer func() { err = errors.Join(err, e.disk.removeFiller()) }()
	if err := e.disk.fillToLastByte(e.ctx); err != nil {
		return "", err
	}
	if err := e.waitForRefusal(before); err != nil {
		return "", err
	}

	sleepOrDone(e.ctx, e.faultDuration(10*time.Second))
	free, err := e.disk.freeBytes()
	refused := e.traffic.errorCount(diskFullReason) - before
	return fmt.Sprintf("ENOSPC, later %d bytes free, %d calls refused", free, refused), err
}

// fillDiskAndKill kills the process when no byte is left on the disk, and starts it again. The
// process must wait for space.
func (e *soakEmbedded) fillDiskAndKill() (proof string, err error) {
	defer func() { err = errors.Join(err, e.disk.removeFiller()) }()
	if err := e.disk.fillToLastByte(e.ctx); err != nil {
		return "", err
	}

	// Fill the disk again after the kill, because the end of the process may release space.
	sleepOrDone(e.ctx, e.faultDuration(2*time.Second))
	killed, err := e.process.kill()
	err = errors.Join(err, e.disk.fillToLastByte(e.ctx))
	if err != nil {
		return "", err
	}

	const wantLine = "the projections are paused"
	logOffset := e.process.logSize()
	if err := e.process.start(); err != nil {
		return "", err
	}
	err = eventually(e.ctx, func(context.Context) error {
		if len(e.process.logLines(logOffset, wantLine)) == 0 {
			return fmt.Errorf("log of the process without space: got no line with %q, want one", wantLine)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return killed + ", started with ENOSPC", nil
}

// slowFsync delays every fsync by up to about a second.
func (e *soakEmbedded) slowFsync() (string, error) {
	return e.injectIntoFsync(e.process, e.randomFsyncDelay(), "DELAYED", 15*time.Second)
}

// failFsync makes fsync fail without writing anything, and then cuts the power. An event that was
// acknowledged although its fsync failed would be lost.
func (e *soakEmbedded) failFsync() (string, error) {
	proof, err := e.injectIntoFsync(e.process, "error=EIO", "INJECTED", 3*time.Second)
	if err != nil {
		return "", err
	}

	// After a pause, the power cut comes while the process recovers.
	if e.random.IntN(2) == 0 {
		e.pauseUpTo(time.Second)
	}

	cut, err := e.cutPowerAndRestart(e.process, e.disk)
	return proof + ", " + cut, err
}

// loseStores removes all stores and does what the documentation says: restore the latest snapshot,
// and start the process.
func (e *soakEmbedded) loseStores() (string, error) {
	// After a kill has interrupted a snapshot, the service takes no other one for three minutes.
	// This call waits for that.
	if _, err := e.takeSnapshot(e.ctx); err != nil {
		return "", err
	}
	if _, err := e.process.kill(); err != nil {
		return "", err
	}
	if err := os.RemoveAll(filepath.Join(e.dataDir, "stores")); err != nil {
		return "", err
	}

	out, err := runTool(e.ctx, e.process.bin, "restore", "--target", filepath.Join(e.dir, "snapshots"), "--data", e.dataDir)
	if err != nil {
		return "", errors.Join(err, e.process.start())
	}

	tables, err := findFiles(filepath.Join(e.dataDir, "stores"), tableFiles)
	if err != nil {
		return "", err
	}
	if len(tables) == 0 {
		return "", fmt.Errorf("tables of the restored stores: got none, want some: %s", out)
	}
	return "DATA/stores removed, snapshot restored", e.process.start()
}

// takeSnapshot lets the service take a snapshot.
func (e *soakEmbedded) takeSnapshot(ctx context.Context) (string, error) {
	return runTool(ctx, e.process.bin, "snapshot", "--server", e.api.URL)
}

// damageLog damages all files of the log once the archive has the whole log, and restores the log
// from the archive, as the documentation says.
func (e *soakEmbedded) damageLog() (string, error) {
	// While the gate is held, no batch is under way, so the archive can get the whole log.
	e.traffic.publishGate.Lock()
	defer e.traffic.publishGate.Unlock()
	if err := e.waitUntilArchived(); err != nil {
		return "", err
	}
	if _, err := e.process.kill(); err != nil {
		return "", err
	}

	blocks, err := findFiles(filepath.Join(e.dataDir, "log"), "*.blk")
	if err != nil {
		return "", err
	}
	if len(blocks) == 0 {
		return "", errors.New("blocks of the log: got none, want some")
	}
	var proofs []string
	for _, path := range blocks {
		proof, err := e.corruptFile(path)
		if err != nil {
			return "", err
		}
		proofs = append(proofs, proof)
	}

	out, err := runTool(e.ctx, e.process.bin, "replay", "archive", "restore", "--data", e.dataDir)
	if err != nil {
		return "", err
	}

	// The command keeps a damaged log. Remove it, because the small disk would fill up.
	damagedLogs, err := filepath.Glob(filepath.Join(e.dataDir, "log-damaged-*"))
	if err != nil {
		return "", err
	}
	if len(damagedLogs) == 0 {
		return "", fmt.Errorf("damaged logs that were moved away: got none, want one: %s", out)
	}
	for _, dir := range damagedLogs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return fmt.Sprintf("%d files: %s; restored in a new epoch", len(proofs), proofs[0]), errors.Join(err, e.process.start())
}

// waitUntilArchived waits until the archive has the whole log.
func (e *soakEmbedded) waitUntilArchived() error {
	return eventually(e.ctx, func(ctx context.Context) error {
		status, err := getStatus(ctx, e.api)
		if err != nil {
			return err
		}

		out, err := runTool(ctx, e.process.bin, "replay", "archive", "status", "--data", e.dataDir, "--json")
		if err != nil {
			return err
		}
		var archive replaycmd.ArchiveStatus
		if err := json.Unmarshal([]byte(out), &archive); err != nil {
			return err
		}

		last := status.GetLog().GetLastSequence()
		if archive.Seq < last {
			return fmt.Errorf("archived envelopes: got those up to %d, want those up to %d", archive.Seq, last)
		}
		return nil
	})
}

// verifyStores lets the process verify that every projection equals the log.
func (e *soakEmbedded) verifyStores() (string, error) {
	return runTool(e.ctx, e.process.bin, "replay", "verify", "--server", e.api.URL)
}

// errorCount returns how many errors of calls had a name that contains the text, so far.
func (s *soakTraffic) errorCount(text string) (sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, count := range s.errorCounts {
		if strings.Contains(name, text) {
			sum += count
		}
	}
	return sum
}
