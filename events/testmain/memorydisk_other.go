//go:build !linux

package testmain

// memoryDisk returns "": only on Linux, every machine has the same directory for files in memory.
func memoryDisk() string { return "" }
