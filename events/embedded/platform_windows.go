package embedded

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

var errLockHeld = errors.New("held by another process")

// lockDir takes the lock of a data directory until the file is closed or the process ends: a file that no other process
// may open.
func lockDir(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS,
		syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, windows.ERROR_SHARING_VIOLATION) {
		return nil, errLockHeld
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(h), path), nil
}

// unlockDir gives a lock back.
func unlockDir(f *os.File) error { return f.Close() }

// freeBytes returns how much of the disk under dir is free for this process.
func freeBytes(dir string) (uint64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	return free, err
}
