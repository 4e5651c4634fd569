package supervisor

// Request is one line of the supervisor's input. The operations that every supervisor knows:
//
//	start      start Command as Name; without Command, start Name again as it was started last
//	stop       SIGSTOP: the process freezes, its sockets stay open; the reply comes once it has stopped
//	continue   SIGCONT
//	kill       SIGKILL; the reply comes once the process has been reaped
//	terminate  SIGTERM; the reply comes once the process has been reaped
//	restart    kill it if it runs, then start
//
// Further operations (up, ready) are handlers given to [Serve].
type Request struct {
	ID      int      `json:"id"`
	Op      string   `json:"op"`
	Name    string   `json:"name,omitempty"`
	Command []string `json:"command,omitempty"`
	Env     []string `json:"env,omitempty"` // added to the supervisor's own environment
	Dir     string   `json:"dir,omitempty"`

	Controllers []string `json:"controllers,omitempty"` // up: as --controllers of kube-controller-manager takes them
}

// Message is one line of the supervisor's output: the reply to the request with the same ID, or, without an ID, the
// event that the process Name ended. Requests are served concurrently, so replies may overtake each other.
type Message struct {
	ID     int    `json:"id,omitempty"`
	Error  string `json:"error,omitempty"`
	Event  string `json:"event,omitempty"` // "exit"
	Name   string `json:"name,omitempty"`
	PID    int    `json:"pid,omitempty"`
	Status string `json:"status,omitempty"` // how the process ended: "exit status 1", "signal: killed"
	Asked  bool   `json:"asked,omitempty"`  // the end was asked for by kill, terminate or restart
	Log    string `json:"log,omitempty"`    // where the output of the process goes

	Dir        string `json:"dir,omitempty"`        // up: the data folder
	Server     string `json:"server,omitempty"`     // up: the URL of the API server
	Kubeconfig string `json:"kubeconfig,omitempty"` // up: path of the administrator's kubeconfig
}
