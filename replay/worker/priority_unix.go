//go:build unix

package worker

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// niceness of a worker: the system gives it a tenth of what it gives a process of niceness 0 that asks for the same core.
const niceness = 10

// isolate gives a worker a group of its own. Its priority is that of the group, and a signal from a terminal reaches only the process
// that serves, which ends it.
func isolate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// lowerPriority lowers the priority of all threads of this process. Where the system refuses, it is not lowered.
func lowerPriority() { _ = unix.Setpriority(unix.PRIO_PGRP, 0, niceness) }
