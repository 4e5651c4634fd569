//go:build !linux

package main

import "errors"

func lookAround() error { return errors.New("programs are isolated on Linux only") }
