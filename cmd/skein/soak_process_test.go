//go:build faults

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// soakProcess is one of the real programs that the soak torments. If it ends by itself, it is started
// again after a second, as a supervisor would do, and the end is reported.
type soakProcess struct {
	name, bin string
	args      []string
	// namespace is that of the network in which it runs, if not the test's.
	namespace string
	logPath   string        // where it says what it does
	clock     *processClock // nil means the kernel's
	onExit    func(p *soakProcess, how string)

	mu         sync.Mutex
	cmd        *exec.Cmd
	exited     chan struct{} // closed when cmd has ended
	shouldRun  bool          // whether it is meant to run
	startCount int
}

// start starts the process.
func (p *soakProcess) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shouldRun = true
	return p.launch()
}

func (p *soakProcess) launch() error {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.CommandContext(context.Background(), p.bin, p.args...)
	if p.namespace != "" {
		p.cmd = exec.CommandContext(context.Background(), "nsenter",
			append([]string{"--net=/run/netns/" + p.namespace, "--", p.bin}, p.args...)...)
	}
	if p.clock != nil {
		p.cmd.Env = append(os.Environ(), clockFileVar+"="+p.clock.file)
	}
	p.cmd.Stderr, p.cmd.Stdout = log, log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.startCount++
	over := make(chan struct{})
	p.exited = over
	go p.waitAndRestart(p.cmd, over)
	return nil
}

// waitAndRestart waits for the end of a run.
func (p *soakProcess) waitAndRestart(cmd *exec.Cmd, over chan struct{}) {
	_ = cmd.Wait()
	p.mu.Lock()
	unasked := p.shouldRun // read before the test that has ended it learns of the end, and starts it again
	close(over)
	p.mu.Unlock()
	if !unasked {
		return
	}
	p.onExit(p, cmd.ProcessState.String())
	sleepOrDone(context.Background(), time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shouldRun && p.exited == over {
		_ = p.launch()
	}
}

func (p *soakProcess) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// kill kills the process and waits for its end. The proof is what the kernel says of that.
func (p *soakProcess) kill() (proof string, err error) {
	p.mu.Lock()
	p.shouldRun = false
	cmd, over := p.cmd, p.exited
	p.mu.Unlock()
	_ = cmd.Process.Kill()
	<-over
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return "", fmt.Errorf("%s was not killed: %v", p.name, cmd.ProcessState)
	}
	return p.name + ": " + cmd.ProcessState.String(), nil
}

// stopGracefully ends the process in order, so that all that it holds is on disk.
func (p *soakProcess) stopGracefully() error {
	p.mu.Lock()
	p.shouldRun = false
	cmd, over := p.cmd, p.exited
	p.mu.Unlock()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-over
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("%s ended with %v", p.name, cmd.ProcessState)
	}
	return nil
}

// pause stops the process for so long, and lets it continue.
func (p *soakProcess) pause(ctx context.Context, d time.Duration) (proof string, err error) {
	pid := p.pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return "", err
	}
	sleepOrDone(ctx, d)
	s := processState(pid)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil || s != "T" {
		return "", fmt.Errorf("%s: the state after SIGSTOP is %q: %w", p.name, s, err)
	}
	return fmt.Sprintf("%s: state T after %v", p.name, d.Round(time.Millisecond)), nil
}

// freeze stops the process and waits until none of its threads runs any more: those that are in a
// call to the kernel stop where it ends. A power cut stops all threads at once: without this, an
// fsync that is under way when the file system is shut down may return without an error and without
// having done anything (jbd2 takes a transaction that the shutdown has dropped for one that is
// committed), and the process would acknowledge what it stands for, as no process without power
// could.
func (p *soakProcess) freeze(ctx context.Context) error {
	pid := p.pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return eventually(ctx, func(context.Context) error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("%s has no threads: %w", p.name, err)
		}
		for _, path := range threads {
			if s := readState(path); s != "T" && s != "D" {
				return fmt.Errorf("%s: a thread is in state %s", p.name, s)
			}
		}
		return nil
	})
}

// logLines returns the lines of the log of the process from an offset on that contain any of some
// words.
func (p *soakProcess) logLines(since int64, words ...string) (lines []string) {
	text, err := os.ReadFile(p.logPath)
	if err != nil || since > int64(len(text)) {
		return nil
	}
	for line := range strings.Lines(string(text[since:])) {
		for _, word := range words {
			if strings.Contains(line, word) {
				lines = append(lines, strings.TrimSpace(line))
				break
			}
		}
	}
	return lines
}

// logSize is the length of the log of the process.
func (p *soakProcess) logSize() int64 {
	info, err := os.Stat(p.logPath)
	if err != nil {
		return 0
	}
	return info.Size()
}
