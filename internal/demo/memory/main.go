// Command memory gives the demo on an API server in memory: see package story. Everything but the API server's storage
// is as on a real one: the controllers are processes that reach it over HTTP, and one can be killed.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/thermostat-go/thermostat/internal/demo/story"
)

func main() {
	keep := flag.Bool("keep", false, "stay up at the end until Ctrl-C, for kubectl")
	programs := flag.String("programs", "", "the directory with the controllers' programs")
	flag.Parse()
	if flag.NArg() > 0 || *programs == "" {
		fmt.Fprintln(os.Stderr, "memory: -programs is needed, and there are no arguments but flags; run make demo")
		os.Exit(2)
	}
	say := story.NewNarrator(os.Stdout)
	os.Exit(story.Main(say, &stage{narrator: say, programs: *programs}, *keep))
}
