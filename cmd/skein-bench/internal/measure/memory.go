package measure

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// ProcessStatus returns a size in bytes from the file /proc/PID/status. The field has the form
// "VmRSS:". ok is false on systems other than Linux, which have no such file.
func ProcessStatus(pid, field string) (size float64, ok bool) {
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

// PeakMemory returns the greatest resident memory of this process so far, in bytes. On systems
// other than Linux it returns how much memory Go has got from the system. getrusage(2) would be
// wrong, because its maximum includes that of the process that started this one.
func PeakMemory() float64 {
	if n, ok := ProcessStatus("self", "VmHWM:"); ok {
		return n
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys)
}
