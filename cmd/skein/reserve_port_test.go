//go:build !linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// reservedPorts are the ports that [reservePort] has reserved.
var reservedPorts sync.Map

// reservePort reserves a port of the loopback for this test binary. Another binary may take the
// port before a server listens there: only Linux lets a server listen on a port that is bound.
func reservePort(port int) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	if _, isReserved := reservedPorts.LoadOrStore(port, nil); isReserved {
		err = fmt.Errorf("port %d is reserved", port)
	}
	return errors.Join(err, l.Close())
}
