package supervisor

// spawner runs functions one after the other in one goroutine. Linux ties the life of a child to the thread that
// started it, so all children are started from a thread that lives as long as the supervisor: see bindToThread.
type spawner struct {
	calls chan func()
	ended chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{calls: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		bindToThread()
		for call := range s.calls {
			call()
		}
	}()
	return s
}

// do runs f and returns its error. It must not be called after close.
func (s *spawner) do(f func() error) error {
	result := make(chan error)
	s.calls <- func() { result <- f() }
	return <-result
}

func (s *spawner) close() {
	close(s.calls)
	<-s.ended
}
