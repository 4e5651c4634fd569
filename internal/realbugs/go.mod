module github.com/thermostat-go/thermostat/internal/realbugs

go 1.26.0

require github.com/thermostat-go/thermostat v0.0.0

replace github.com/thermostat-go/thermostat => ../..
