//go:build !unix

package plan

import "os/exec"

func together(*exec.Cmd) {}

// terminate kills: there is no signal that asks a process to end.
func terminate(c *exec.Cmd) { kill(c) }

func kill(c *exec.Cmd) { _ = c.Process.Kill() } // or it has ended
