//go:build unix

package worker

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// niceness is the scheduling priority of a worker. If both want the same core, the system gives a
// worker about a tenth of the time that it gives a process of niceness 0.
const niceness = 10

// isolate puts a worker into a process group of its own. lowerPriority lowers the priority of the
// whole group, which must not include the serving process. It also keeps signals of a terminal from
// the worker: only the serving process gets them, and ends the worker.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// lowerPriority lowers the priority of this process's group, and so of all its threads. If the
// system refuses, the worker runs at normal priority, which only slows down the service.
func lowerPriority() {
	_ = unix.Setpriority(unix.PRIO_PGRP, 0, niceness)
}
