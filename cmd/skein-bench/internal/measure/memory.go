package measure

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// ProcessStatus returns a size in the status that Linux has of a process, in bytes. It returns false on other systems. The field has the form
// "VmRSS:".
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

// PeakMemory returns the greatest resident memory of this process so far. On other systems than Linux it returns what Go has asked the system
// for: getrusage(2) is of no use, because its maximum begins with that of the process that started this one.
func PeakMemory() float64 {
	if n, ok := ProcessStatus("self", "VmHWM:"); ok {
		return n
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys)
}
