module faultless.test/go
go 1.20
