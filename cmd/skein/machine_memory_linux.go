package main

import "syscall"

// machineMemory returns the memory of the machine in bytes; 0 means that it is not known.
// /proc/meminfo has the same number, but a process may run without that file, as with
// ProcSubset=pid in a systemd unit.
func machineMemory() int64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
