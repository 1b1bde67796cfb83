//go:build faults

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// soakProcess is a real program under the soak. If it ends although it should run, it is started
// again after a second, as a supervisor would do, and its end is reported.
type soakProcess struct {
	name string
	// bin is the path of the program.
	bin  string
	args []string
	// namespace is the network namespace in which the process runs; empty means that of the test.
	namespace string
	// logPath is the file to which all runs of the process append what they print.
	logPath string
	// clock is nil if the process uses the clock of the machine.
	clock *processClock
	// onExit is called when a run ends by itself, and when the program cannot be started again. The
	// text says what the process did.
	onExit func(p *soakProcess, how string)

	// mu protects the fields below.
	mu sync.Mutex
	// cmd is the latest run, and exited is closed when it has ended.
	cmd    *exec.Cmd
	exited chan struct{}
	// shouldRun is false while the test itself has ended the process.
	shouldRun bool
	// startCount is how many times the program was started.
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
	defer log.Close() // the process has a descriptor of its own

	program := p.bin
	args := p.args
	if p.namespace != "" {
		program = "nsenter"
		args = append([]string{"--net=/run/netns/" + p.namespace, "--", p.bin}, p.args...)
	}

	// The process has no context of the test, because the end of that would kill the process, which
	// would look as if it had ended by itself. Tests kill their processes in a cleanup.
	cmd := exec.CommandContext(context.Background(), program, args...)
	if p.clock != nil {
		cmd.Env = append(os.Environ(), clockFileVar+"="+p.clock.file)
	}
	cmd.Stdout = log
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return err
	}

	// After a failed start, p.cmd is still the previous run, which has a process.
	p.startCount++
	p.cmd = cmd
	p.exited = make(chan struct{})
	go p.waitAndRestart(cmd, p.exited)
	return nil
}

// waitAndRestart waits for the end of a run, closes the channel exited of that run, and starts the
// process again if the test has not ended it.
func (p *soakProcess) waitAndRestart(cmd *exec.Cmd, exited chan struct{}) {
	_ = cmd.Wait() // cmd.ProcessState says how the process ended

	p.mu.Lock()
	// Read this before the test learns of the end, because the test may then start the process
	// again.
	isUnexpected := p.shouldRun
	close(exited)
	p.mu.Unlock()
	if !isUnexpected {
		return
	}

	p.onExit(p, "ended by itself: "+cmd.ProcessState.String())
	sleepOrDone(context.Background(), time.Second)

	// Meanwhile the test may have ended the process, or may have ended it and started another run.
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shouldRun || p.exited != exited {
		return
	}
	if err := p.launch(); err != nil {
		p.onExit(p, fmt.Sprintf("cannot be started again: %v", err))
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

// expectExit notes that the test ends the process now, so that it is not started again. It returns
// the latest run and the channel that is closed at the end of that run.
func (p *soakProcess) expectExit() (cmd *exec.Cmd, exited chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shouldRun = false
	return p.cmd, p.exited
}

// kill kills the process and waits for its end. The proof is the wait status of the process.
func (p *soakProcess) kill() (proof string, err error) {
	cmd, exited := p.expectExit()
	_ = cmd.Process.Kill()
	<-exited

	// A process that had ended by itself before has another status.
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return "", fmt.Errorf("end of %s: got %v, want %v", p.name, cmd.ProcessState, syscall.SIGKILL)
	}
	return p.name + ": " + cmd.ProcessState.String(), nil
}

// stopGracefully ends the process with SIGTERM, so that it flushes everything to disk.
func (p *soakProcess) stopGracefully() error {
	cmd, exited := p.expectExit()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-exited

	if !cmd.ProcessState.Success() {
		return fmt.Errorf("end of %s after SIGTERM: got %v, want exit status 0", p.name, cmd.ProcessState)
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

	state := processState(pid)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		return "", fmt.Errorf("continue %s: %w", p.name, err)
	}
	if state != "T" {
		return "", fmt.Errorf("state of %s after SIGSTOP: got %q, want T", p.name, state)
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
		if err != nil {
			return err
		}
		if len(threads) == 0 {
			return fmt.Errorf("threads of %s: got none, want at least 1", p.name)
		}

		// T is stopped, and D waits in the kernel, such as for the disk.
		for _, path := range threads {
			if state := readState(path); state != "T" && state != "D" {
				return fmt.Errorf("state of a thread of %s: got %q, want T or D", p.name, state)
			}
		}
		return nil
	})
}

// logLines returns those lines of the log after an offset in bytes that contain at least one of the
// texts.
func (p *soakProcess) logLines(offset int64, texts ...string) (lines []string) {
	log, err := os.ReadFile(p.logPath)
	if err != nil || offset > int64(len(log)) {
		return nil
	}
	for line := range strings.Lines(string(log[offset:])) {
		isMatch := slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) })
		if isMatch {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// logSize returns the size of the log in bytes, or 0 if there is no log yet.
func (p *soakProcess) logSize() int64 {
	info, err := os.Stat(p.logPath)
	if err != nil {
		return 0
	}
	return info.Size()
}
