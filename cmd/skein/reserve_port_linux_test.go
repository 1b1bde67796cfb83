package main

import (
	"errors"
	"syscall"
)

// reservePort binds a socket to a port of the loopback, and keeps the socket open without
// listening. So no other test, and no other test binary, can reserve the port before a server
// listens there, or while that server is stopped. Linux lets the server listen, because both
// sockets have SO_REUSEADDR.
func reservePort(port int) error {
	syscall.ForkLock.RLock()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(socket) // a server that outlives this binary must not keep the port
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}

	// With SO_REUSEADDR, the socket could be bound to a port that is reserved already. So the
	// option is set afterwards.
	err = syscall.Bind(socket, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		return errors.Join(err, syscall.Close(socket))
	}
	return nil
}
