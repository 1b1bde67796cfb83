package measure

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// ProcessStatus returns a size that Linux tells of a process, in bytes.
func ProcessStatus(pid, field string) (bytesOf float64, ok bool) {
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0, false
	}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 2 || string(fields[0]) != field {
			continue
		}
		if kib, err := strconv.ParseFloat(string(fields[1]), 64); err == nil {
			return kib * 1024, true
		}
	}
	return 0, false
}

// PeakMemory returns the greatest resident memory of the process; where the system does not say it, what Go asked of it. The
// usage that the system tells of a process begins with that of the one that started it.
func PeakMemory() float64 {
	if n, ok := ProcessStatus("self", "VmHWM:"); ok {
		return n
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys)
}
