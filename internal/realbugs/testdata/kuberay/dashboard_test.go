package check

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils/dashboardclient"
	utiltypes "github.com/ray-project/kuberay/ray-operator/controllers/ray/utils/types"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// host has the dashboards of all Ray clusters, since the names of their own hosts are drawn by the operator.
const host = "ray.example.com"

// dashboards are the operator's own clients of dashboards, that of a cluster at the name of who has made it.
type dashboards struct{}

func (dashboards) GetDashboardClient(manager.Manager) func(*rayv1.RayCluster, string) (
	dashboardclient.RayDashboardClientInterface, error) {
	return func(c *rayv1.RayCluster, _ string) (dashboardclient.RayDashboardClientInterface, error) {
		client := &dashboardclient.RayDashboardClient{}
		client.InitClient(&http.Client{Timeout: 2 * time.Second},
			"http://"+host+"/"+c.Labels[utils.RayOriginatedFromCRNameLabelKey])
		return client, nil
	}
}

func (dashboards) GetHttpProxyClient(manager.Manager) func(string, string, string,
	int) utils.RayHttpProxyClientInterface {
	return func(string, string, string, int) utils.RayHttpProxyClientInterface { return proxy{} }
}

// proxy asks for the health of the proxy of any pod.
type proxy struct{}

func (proxy) CheckProxyActorHealth(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/"+utils.RayServeProxyHealthPath, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Timeout: 2 * time.Second}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the proxy is not healthy: %s", resp.Status)
	}
	return nil
}

// endless is the entrypoint of a job that runs until it is stopped. Others run for 20 s.
const endless = "python endless.py"

// submitted is a job of a Ray cluster.
type submitted struct {
	entrypoint string
	at         time.Time
	stopped    bool
}

// rays are the dashboards: jobs by their identifiers, and the applications of Ray Serve by the names of the services.
type rays struct {
	mu    sync.Mutex
	jobs  map[string]*submitted      // guarded by mu
	apps  map[string]json.RawMessage // guarded by mu
	names map[string][]string        // guarded by mu: those of the applications
}

func outside() map[string]func() reconciletest.API {
	return map[string]func() reconciletest.API{host: func() reconciletest.API {
		return &rays{jobs: map[string]*submitted{}, apps: map[string]json.RawMessage{}, names: map[string][]string{}}
	}}
}

func (r *rays) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, path, _ := strings.Cut(req.URL.Path, "/api/")
	of = strings.Trim(of, "/")
	if id, ok := strings.CutPrefix(path, "jobs/"); ok {
		r.job(w, req, strings.TrimSuffix(id, "/stop"))
		return
	}
	if path != "serve/applications/" {
		return // the health of a proxy: 200
	}
	if req.Method == http.MethodPut {
		r.deploy(w, req, of)
		return
	}
	details := utiltypes.ServeDetails{Applications: map[string]utiltypes.ServeApplicationDetails{}}
	for _, name := range r.names[of] {
		details.Applications[name] = utiltypes.ServeApplicationDetails{
			ServeApplicationStatus: utiltypes.ServeApplicationStatus{Name: name, Status: "RUNNING"}}
	}
	answer(w, details)
}

// job serves a request for a job, with mu held: GET reads it, POST submits one or, if it has an identifier, stops it.
func (r *rays) job(w http.ResponseWriter, req *http.Request, id string) {
	if req.Method == http.MethodPost && id == "" {
		var asked utiltypes.RayJobRequest
		if err := json.NewDecoder(req.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if r.jobs[asked.SubmissionId] != nil {
			http.Error(w, "Please use a different submission_id.", http.StatusInternalServerError)
			return
		}
		r.jobs[asked.SubmissionId] = &submitted{entrypoint: asked.Entrypoint, at: time.Now()}
		answer(w, utiltypes.RayJobResponse{JobId: asked.SubmissionId})
		return
	}
	j := r.jobs[id]
	if j == nil {
		http.Error(w, "there is no such job", http.StatusNotFound)
		return
	}
	if req.Method == http.MethodPost {
		j.stopped = true
		answer(w, utiltypes.RayJobStopResponse{Stopped: true})
		return
	}
	info := utiltypes.RayJobInfo{JobStatus: rayv1.JobStatusRunning, Entrypoint: j.entrypoint, SubmissionId: id,
		StartTime: uint64(j.at.UnixMilli())}
	switch ends := j.at.Add(20 * time.Second); {
	case j.stopped:
		info.JobStatus = rayv1.JobStatusStopped
	case j.entrypoint != endless && !time.Now().Before(ends):
		info.JobStatus, info.EndTime = rayv1.JobStatusSucceeded, uint64(ends.UnixMilli())
	}
	answer(w, info)
}

// deploy keeps the applications of a service, with mu held.
func (r *rays) deploy(w http.ResponseWriter, req *http.Request, of string) {
	var asked json.RawMessage
	var names struct{ Applications []struct{ Name string } }
	err := json.NewDecoder(req.Body).Decode(&asked)
	if err == nil {
		err = json.Unmarshal(asked, &names)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.apps[of], r.names[of] = asked, nil
	for _, app := range names.Applications {
		r.names[of] = append(r.names[of], app.Name)
	}
}

// State leaves out what is old: a job and an application end with their Ray cluster, which goes with who has made it.
func (r *rays) State() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	jobs, apps := map[string]any{}, map[string]any{}
	for id, j := range r.jobs {
		if j.entrypoint != endless {
			jobs[id] = map[string]any{"entrypoint": j.entrypoint, "stopped": j.stopped}
		}
	}
	for of, app := range r.apps {
		if of != "old" {
			apps[of] = app
		}
	}
	return map[string]any{"jobs": jobs, "applications": apps}
}

func answer(w http.ResponseWriter, what any) {
	_ = json.NewEncoder(w).Encode(what) // the client has gone
}
