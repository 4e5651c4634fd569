package lifecycle

import (
	"bytes"
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strings"
)

// GoroutineID returns the number of the calling goroutine, the way stacks spell it: they begin with "goroutine 7
// [running]:".
func GoroutineID() string {
	buf := make([]byte, 64)
	fields := bytes.Fields(buf[:runtime.Stack(buf, false)])
	return string(fields[1])
}

// StackOfGoroutine returns the stack of the goroutine of that number. It stops the world for a moment, so it is for
// rare occasions.
func StackOfGoroutine(id string) string {
	buf := make([]byte, 1<<20)
	all := buf[:runtime.Stack(buf, true)]
	for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.HasPrefix(stack, []byte("goroutine "+id+" ")) {
			return string(stack)
		}
	}
	return "not found"
}

// WhereInUserCode returns the function, file and line of the first frame of a stack that is the user's: not Go's, not
// Kubernetes' and not this library's. If there is none it returns "".
func WhereInUserCode(stack string) string {
	lines := strings.Split(stack, "\n")
	for i := 1; i+1 < len(lines); i += 2 {
		function, file := lines[i], strings.TrimSpace(lines[i+1])
		if cut := strings.LastIndexByte(function, '('); cut > 0 {
			function = function[:cut]
		}
		file, _, _ = strings.Cut(file, " ")
		if ours(function, file) || strings.HasPrefix(function, "k8s.io/") || ofGo(function, file) {
			continue
		}
		return path.Base(function) + " " + path.Base(file)
	}
	return ""
}

// ours reports whether a function is one of this library's: not of its examples, and not of its tests.
func ours(function, file string) bool {
	rest, ok := strings.CutPrefix(function, "github.com/thermostat-go/thermostat/")
	file, _, _ = strings.Cut(file, ":")
	return ok && !strings.HasPrefix(rest, "examples/") && !strings.HasSuffix(file, "_test.go")
}

// ofGo reports whether a function is one of Go's standard library. Its files are where that of fmt.Sprint is; in a
// binary without paths only the names of packages tell.
func ofGo(function, file string) bool {
	sprint := runtime.FuncForPC(reflect.ValueOf(fmt.Sprint).Pointer())
	known, _ := sprint.FileLine(sprint.Entry())
	if root := strings.TrimSuffix(known, "fmt/print.go"); root != "" {
		return strings.HasPrefix(file, root)
	}
	first, _, _ := strings.Cut(function, "/")
	name, _, dotted := strings.Cut(first, ".")
	return name != "main" && !(dotted && strings.Contains(function, "/"))
}
