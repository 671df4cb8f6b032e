module clean

go 1.26.0
