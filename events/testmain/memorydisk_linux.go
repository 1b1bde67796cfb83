package testmain

import "golang.org/x/sys/unix"

const (
	sharedMemory = "/dev/shm"
	// memoryDiskBytes is several times what all tests together need at any time.
	memoryDiskBytes = 1 << 30
)

// memoryDisk returns a directory whose files are in memory and may be executed, or "" if this
// machine has none with enough space. Containers often have one of 64 MiB.
func memoryDisk() string {
	var stat unix.Statfs_t
	if err := unix.Statfs(sharedMemory, &stat); err != nil || stat.Type != unix.TMPFS_MAGIC {
		return ""
	}
	// The flag of statfs, ST_NOEXEC, is the same bit as that of mount.
	if stat.Flags&unix.MS_NOEXEC != 0 {
		return ""
	}

	if stat.Bavail*uint64(stat.Bsize) < memoryDiskBytes || unix.Access(sharedMemory, unix.W_OK|unix.X_OK) != nil {
		return ""
	}
	return sharedMemory
}
