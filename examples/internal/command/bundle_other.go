//go:build !unix

package command

import "os"

var bundleSignal os.Signal // there is none
