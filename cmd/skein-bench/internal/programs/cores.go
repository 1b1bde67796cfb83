package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
)

// Cores has the processor cores of the measured service and those of its client, so that neither
// has to wait for the other. Both are lists of cores in the form of taskset(1).
type Cores struct{ Service, Client string }

// DivideCores gives the first half of the cores to the service and the rest to the client. It
// returns nil on a machine with one core, and on a machine without taskset.
func DivideCores() *Cores {
	n := runtime.NumCPU()
	if _, err := exec.LookPath("taskset"); err != nil || n < 2 {
		return nil
	}
	return &Cores{Service: fmt.Sprintf("0-%d", n/2-1), Client: fmt.Sprintf("%d-%d", n/2, n-1)}
}

// extraProcs is how many processors the Go runtime gets beyond the cores of the client. They are
// enough for the goroutines that pace calls and writes.
const extraProcs = 4

// ConfineToClient keeps all threads of this process on the cores of the client, until the function
// that it returns is called.
func (c *Cores) ConfineToClient(ctx context.Context) (release func() error, err error) {
	setCores := func(ctx context.Context, cores string) error {
		cmd := exec.CommandContext(ctx, "taskset", "--all-tasks", "--cpu-list", "--pid", cores, strconv.Itoa(os.Getpid()))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("taskset: %w: %s", err, out)
		}
		return nil
	}
	numCores := runtime.NumCPU()
	if err := setCores(ctx, c.Client); err != nil {
		return nil, err
	}

	// A goroutine that paces calls waits in a system call. It keeps its processor of the Go runtime
	// until the runtime notices, which can take 10 ms. The calls need other processors meanwhile.
	before := runtime.GOMAXPROCS(numCores - numCores/2 + extraProcs)
	return func() error {
		runtime.GOMAXPROCS(before)
		return setCores(context.WithoutCancel(ctx), fmt.Sprintf("0-%d", numCores-1))
	}, nil
}
