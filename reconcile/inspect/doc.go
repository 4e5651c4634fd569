// Package inspect shows what the controllers of a Manager do: why a key is reconciled, or is not.
//
//	serve.Options{
//		Address:  ":8080", // the loopback interface, port 8080
//		Handlers: map[string]http.Handler{"/inspect/": inspect.Handler(inspect.Options{})},
//	}
//
//	kubectl port-forward deployment/web 8080     # then open http://localhost:8080/inspect/
//	go run github.com/thermostat-go/thermostat/reconcile/inspect/cmd/why default/web
//
// There are three pages. The overview has the controllers with their queues, the caches with their health, and the
// leadership. The list of a controller's keys can be searched and sorted. The page of a key begins with the sentence of
// [reconcile.Controller.Why], and has its last runs: what named the key, what it waited for, what it wrote, what came
// out. A page changes while it is looked at, and works without JavaScript.
//
// Each page is JSON with Accept: application/json, or with .json after its name. The fields are those of
// [status.Manager] and [status.Key].
//
//	index        the overview
//	keys         ?controller=web&search=shop/&state=Parked&sort=failures&p=2. sort is state, name, age, next, failures,
//	             runs or last; a page has 50 keys
//	key          ?controller=web&namespace=default&name=web
//	bundle       a bundle, as a file to download
//
// # What is not shown
//
// No page, no JSON and no bundle has a value of an object: only names, versions, paths of fields, and times. Of an
// error they have the type, and the reason and code of the API server's answer. The text of an error may quote a value,
// so it is shown only if ManagerOptions.ErrorTexts is set.
//
// # Who may look
//
// If serve.Options.AccessReviews is set, the API server decides, as for metrics: the verb get on the path of the page,
// such as /inspect/*. Without it a request is answered only if it comes over the loopback interface, whatever address
// is listened on, and names localhost or a loopback address as its host (handler.refuses). kubectl port-forward
// does both. A browser's request that comes from another site, by a link as well, is refused: type the address. The
// handler knows it by Sec-Fetch-Site or Origin. An old browser that sends neither can be made to ask for pages, though
// the other site cannot read them. Options.Unguarded is for a server with an authentication of its own.
//
// The pages change nothing, unless Options.Actions is set. Then a key has buttons to reconcile it at once, to pause it
// and to resume it. The handler refuses a POST that a browser sends for another site. A Content-Security-Policy lets a
// page load nothing but its own style sheet and script.
//
// # What it costs
//
// Nothing, while no page is open: the controller records what the pages show in any case. The list of the keys of a
// controller with 100,000 keys takes 85 ms of a processor's time (BenchmarkPages on two cores), the others 1 ms. A page
// that is followed is drawn once a second, or less often, so that it never takes more than a twentieth of a processor's
// time (handler.stream). At most 32 pages can be followed at once.
//
// # Bundles
//
// A bundle is one file with all that the pages show, for a bug report. [WriteBundle] writes one, to be called on a
// signal or when Run has returned ErrStuck; the page bundle offers one. [ReadBundle] reads it, also if it is cut off or
// damaged; [Bundle.Handler] shows the same pages from it, as does "why serve FILE". The format is described in
// reconcile/inspect/BUNDLE.md.
//
// # Reading order
//
// handler.go (who may look, and the way of a request), source.go and live.go (where the data comes from), view.go (how
// a page is made), overview.go, keys.go, key.go with timeline.go, format.go (how values are written), events.go (pages
// that change), bundle.go and readbundle.go. The templates, the style sheet and the script are in the folder page; the
// command why, for a terminal, is in cmd/why.
package inspect
