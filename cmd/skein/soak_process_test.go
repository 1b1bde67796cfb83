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

// soakProcess is a real program under the soak. If it ends although it should run, it is started
// again after a second, as a supervisor would do, and its end is reported.
type soakProcess struct {
	name, bin string
	args      []string
	// namespace is the network namespace in which the process runs; empty means that of the test.
	namespace string
	logPath   string
	// clock is nil if the process uses the clock of the machine.
	clock  *processClock
	onExit func(p *soakProcess, how string)

	mu  sync.Mutex
	cmd *exec.Cmd
	// exited is closed when cmd has ended.
	exited chan struct{}
	// shouldRun is false while the test itself has ended the process.
	shouldRun  bool
	startCount int
}

// start starts the process.
func (p *soakProcess) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shouldRun = true
	return p.launch()
}

// launch runs the program. p.mu must be held.
func (p *soakProcess) launch() error {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.Background(), p.bin, p.args...)
	if p.namespace != "" {
		cmd = exec.CommandContext(context.Background(), "nsenter",
			append([]string{"--net=/run/netns/" + p.namespace, "--", p.bin}, p.args...)...)
	}
	if p.clock != nil {
		cmd.Env = append(os.Environ(), clockFileVar+"="+p.clock.file)
	}

	cmd.Stderr, cmd.Stdout = log, log
	if err := cmd.Start(); err != nil {
		return err
	}

	// After a failed start, p.cmd is still the previous run, which has a process.
	p.startCount++
	over := make(chan struct{})
	p.cmd, p.exited = cmd, over
	go p.waitAndRestart(cmd, over)
	return nil
}

// waitAndRestart waits for the end of a run, and starts the process again if the test has not ended
// it.
func (p *soakProcess) waitAndRestart(cmd *exec.Cmd, over chan struct{}) {
	_ = cmd.Wait()
	p.mu.Lock()
	// Read this before the test learns of the end, because the test may then start the process
	// again.
	unexpected := p.shouldRun
	close(over)
	p.mu.Unlock()
	if !unexpected {
		return
	}

	p.onExit(p, cmd.ProcessState.String())
	sleepOrDone(context.Background(), time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shouldRun && p.exited == over {
		if err := p.launch(); err != nil {
			p.onExit(p, fmt.Sprintf("cannot be started again: %v", err))
		}
	}
}

func (p *soakProcess) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// starts returns how many times the process was started.
func (p *soakProcess) starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startCount
}

// kill kills the process and waits for its end. The proof is the wait status of the process.
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

// stopGracefully ends the process with SIGTERM, so that it flushes everything to disk.
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

// pause stops the threads of the process for a time, and lets them continue. The proof is the state
// of the process at the end of the pause.
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

// freeze stops the process, and waits until all of its threads are stopped or wait in the kernel. A
// power cut stops all threads at once. Without freeze, an fsync that is under way when the file
// system is shut down may return without an error and without having written anything, because jbd2
// takes a transaction that the shutdown has dropped for a committed one. The process would then
// acknowledge events that are lost, which no process without power could.
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

// logLines returns those lines of the log after an offset that contain at least one of the words.
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

// logSize returns the size of the log in bytes.
func (p *soakProcess) logSize() int64 {
	info, err := os.Stat(p.logPath)
	if err != nil {
		return 0
	}
	return info.Size()
}
