//go:build !unix

package worker

import "os/exec"

func setApart(*exec.Cmd) {}

func beNice() {}
